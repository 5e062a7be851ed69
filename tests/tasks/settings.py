"""Settings of a worker for ``django.tasks``."""

import os
from pathlib import Path

from testproject.settings import *  # noqa: F403
from testproject.settings import INSTALLED_APPS, REDLOCK
from tests.support.databases import sqlite_settings

INSTALLED_APPS = [*INSTALLED_APPS, "django_tasks_db"]
DATABASES = {"default": sqlite_settings(Path(os.environ["TASKS_DATABASE"]))}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
REDLOCK = {"default": {**REDLOCK["default"], "OPTIONS": {"node_timeout": 5}}}  # the machine may be busy
