"""Django system checks of the ``REDLOCK`` setting, of deployments, and of Celery and Django tasks."""
