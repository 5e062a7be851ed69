"""The admin, and the shop at the root."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("testproject.shop.urls")),
]
