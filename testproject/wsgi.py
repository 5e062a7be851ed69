"""The WSGI application. It also serves the admin's static files, so that no other server is needed."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

application = StaticFilesHandler(get_wsgi_application())
