"""A WSGI application for uWSGI, which imports it and uses its backend before it forks workers."""

import os
import time

from django_redlock.backends.redis import RedisBackend

loaded = os.getpid()
backend = RedisBackend(os.environ["REDLOCK_URL"], ttl=4, node_timeout=5)
with backend.lock("loaded"):
    pass


def application(environ, start_response):
    """Reply whether a forked worker renews its lock."""
    with backend.lock(f"worker:{os.getpid()}", on_lost="warn") as lock:
        left = lock.remaining
        while not lock.lost and lock.remaining <= left:
            left = lock.remaining
            time.sleep(0.02)
        answer = f"forked {os.getpid() != loaded} lost {lock.lost}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.encode()]
