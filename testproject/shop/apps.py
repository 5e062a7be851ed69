from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "testproject.shop"

    def ready(self) -> None:
        """Create the project's Celery app, so that shared tasks use it in processes that only submit tasks."""
        import testproject.celery  # noqa: F401
