"""The admin, and the pages of django-grappelli."""

import os

from django.urls import include, path

from tests.django.urls import urlpatterns as admin

urlpatterns = [*admin, *([path("grappelli/", include("grappelli.urls"))] if os.environ["THEME"] == "grappelli" else [])]
