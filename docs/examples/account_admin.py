"""The admin of a model with ``fence_required``: it changes and deletes a row under the lock of that row."""
# ruff: noqa: ANN001, ANN002, ANN003, ANN201  (as most projects write an admin)

from django.contrib import admin, messages
from django.http import HttpResponseRedirect
from shop.models import Account

from django_redlock import lock
from django_redlock.errors import LockNotAcquired, StaleLock


@admin.register(Account)
class AccountAdmin(admin.ModelAdmin):
    readonly_fields = ["fence", "balance"]  # fields that other holders write don't belong into the form
    actions = None  # "delete selected" would delete without the locks

    def change_view(self, request, object_id, *args, **kwargs):
        return self.under_lock(super().change_view, request, object_id, *args, **kwargs)

    def delete_view(self, request, object_id, *args, **kwargs):
        return self.under_lock(super().delete_view, request, object_id, *args, **kwargs)

    def under_lock(self, view, request, object_id, *args, **kwargs):
        if request.method != "POST":
            return view(request, object_id, *args, **kwargs)
        name = f"account:{int(object_id)}"
        try:
            with lock(name, fencing=True, blocking_timeout=5, release_on_commit=True) as request.lock:
                return view(request, object_id, *args, **kwargs)
        except (LockNotAcquired, StaleLock) as error:
            self.message_user(request, f"Nothing was saved: {error}. Please try again.", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def get_object(self, request, *args, **kwargs):
        found = super().get_object(request, *args, **kwargs)
        if found and hasattr(request, "lock"):
            found.refresh_from_db(lock=request.lock)  # claims the row and reads it
        return found

    def save_model(self, request, obj, form, change):
        if change:
            obj.save(lock=request.lock)
        else:
            obj.save()  # a new row needs no lock

    def delete_model(self, request, obj):
        obj.delete(lock=request.lock)
