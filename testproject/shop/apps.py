from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "testproject.shop"

    def ready(self) -> None:
        """Create the project's Celery app, which shared tasks then use, also where they are only submitted."""
        import testproject.celery  # noqa: F401
