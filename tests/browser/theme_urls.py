"""The admin, whose pages are refreshed three times a second, and the pages of django-grappelli."""

import os

from django.contrib.admin import site
from django.urls import include, path

from django_redlock.models import HeldLock
from tests.django.urls import urlpatterns as admin

site.get_model_admin(HeldLock).refresh = 0.3

urlpatterns = [*admin, *([path("grappelli/", include("grappelli.urls"))] if os.environ["THEME"] == "grappelli" else [])]
