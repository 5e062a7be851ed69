"""The part of ``single_instance_task`` that Celery tasks and Django's tasks share: one call of a task at a time."""
