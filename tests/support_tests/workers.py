"""The child processes of `test_processes`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.support.overlap import believing


def greet(channel, name):
    channel.say("hello", name=name, pid=os.getpid())
    return channel.hear("go", timeout=60)["word"] * 2


def fail(channel):
    raise ValueError("on purpose")


def silence(channel):
    channel.hear("never", timeout=60)


def count(channel):
    number = 0
    while True:
        number += 1
        channel.say("count", number=number, at=time.monotonic())
        channel.hear("next", timeout=60)


def look_around(channel):
    return {
        "session": os.getsid(0),
        "variable": os.environ.get("WORKER"),
        "package": "django_redlock" in sys.modules,
        "libraries": "redis.asyncio" in sys.modules,
        "files": sum(not _is_gone(int(each.name)) for each in list(Path("/proc/self/fd").iterdir())),
    }


def _is_gone(number):
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def believe(channel, file, name, worker, until=None):
    with believing(file, name, worker, until):
        channel.say("holding")
        channel.hear("let go", timeout=60)
