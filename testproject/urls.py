"""The admin, whose list of live locks is the front page, and the shop."""

from django.contrib import admin
from django.urls import include, path, reverse_lazy
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(url=reverse_lazy("admin:django_redlock_heldlock_changelist"))),
    path("admin/", admin.site.urls),
    path("", include("testproject.shop.urls")),
]
