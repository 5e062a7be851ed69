"""The code that the ``single_instance_task`` decorators of Celery and ``django.tasks`` share."""
