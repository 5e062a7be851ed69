"""The test project as a process, under a theme of the admin."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from testproject.redis_server import free_port
from tests.support.service import poll

PREPARE = """
import django
django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
call_command("migrate", verbosity=0)
user, session = User.objects.create_superuser("operator"), SessionStore()
session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session.save()
print(session.session_key)
"""


@contextlib.contextmanager
def site(theme: str, redis_url: str, database: Path) -> Iterator[tuple[str, str]]:
    """Serve the admin under ``theme``, the name of an app. Yields the site's URL and the session of an operator."""
    environment = {
        **os.environ,
        "THEME": theme,
        "DJANGO_SETTINGS_MODULE": "tests.browser.theme_settings",
        "TESTPROJECT_REDIS": redis_url,
        "TESTPROJECT_DATABASE": str(database),
        "PYTHONPATH": ".",
    }
    prepare = [sys.executable, "-c", PREPARE]
    made = subprocess.run(prepare, env=environment, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    port = free_port(made)
    command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        try:
            poll(lambda: _answers(port) or server.poll() is not None, timeout=60, what="the site")
            assert server.poll() is None, server.stderr.read()
            yield f"http://127.0.0.1:{port}", made.stdout.strip()
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
