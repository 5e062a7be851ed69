"""An ASGI application for real servers: an async view whose work runs in a thread until the test ends it.

``events`` in Redis lists the events in order: ``entered 1``, ``disconnected``, ``committed 1``.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import path
from redis import Redis

from django_redlock.decorators import locked_view

redis = Redis.from_url(os.environ.get("TESTPROJECT_REDIS", ""))


def sell(number: int) -> None:
    redis.rpush("events", f"entered {number}")
    redis.blpop([f"commit {number}"], timeout=60)
    redis.rpush("events", f"committed {number}")


@locked_view("sale", blocking_timeout=60)
async def buy(request, number):
    await sync_to_async(sell, thread_sensitive=False)(number)
    return HttpResponse(status=201)


urlpatterns = [path("buy/<int:number>/", buy)]


class AnnouncesDisconnects:
    """Records when the server has told Django that the client has disconnected."""

    def __init__(self, application):
        self.application = application

    async def __call__(self, scope, receive, send):
        async def listening():
            message = await receive()
            if message["type"] == "http.disconnect" and scope["path"] == "/buy/1/":
                await sync_to_async(redis.rpush, thread_sensitive=False)("events", "disconnected")
            return message

        await self.application(scope, listening, send)


if os.environ.get("ASGI_SALE"):  # not where a test imports it for its views
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    application = AnnouncesDisconnects(get_asgi_application())
