"""At most one call of a task at a time: what Celery tasks and Django's tasks share."""
