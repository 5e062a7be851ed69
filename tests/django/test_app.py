"""`django_redlock` in INSTALLED_APPS: the start of real processes."""

import io
import json
import os
import subprocess
import sys

import pytest
from django.core.management import call_command

from tests.support.proxy import Proxy


@pytest.mark.django_db
@pytest.mark.parametrize("every_row", [False, True])
def test_dumpdata(every_row):
    """``dumpdata`` does not look for a table of live locks."""
    output = io.StringIO()
    call_command("dumpdata", "django_redlock", "auth.group", use_base_manager=every_row, stdout=output)
    assert json.loads(output.getvalue()) == []


def test_nothing_connects_to_redis(start, redis_url):
    """A process connects to no Redis before its first lock, a server neither."""
    proxy = start(Proxy(redis_url))
    program = "import sys; sys.argv = ['gunicorn']; import django; django.setup()"
    env = {**os.environ, "TESTPROJECT_REDIS": proxy.url, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    subprocess.run([sys.executable, "-c", program], env=env, timeout=120, check=True)
    assert proxy.accepted == 0
