"""URLs of the admin, with the list of live locks as the front page, and of the shop."""

from django.contrib import admin
from django.urls import include, path, reverse_lazy
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(url=reverse_lazy("admin:django_redlock_heldlock_changelist"))),
    path("admin/", admin.site.urls),
    path("", include("testproject.shop.urls")),
]
