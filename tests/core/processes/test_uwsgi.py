"""uWSGI forks workers in C, without Python's fork handlers. The workers behave as forked processes all the same."""

import contextlib
import shutil
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from testproject.processes import Child, wait_until
from testproject.redis_server import free_port

UWSGI = shutil.which("uwsgi", path=Path(sys.executable).parent) or shutil.which("uwsgi")


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.skipif(UWSGI is None, reason="uWSGI is not installed (pip install pyuwsgi)")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--enable-threads"],
        pytest.param(
            ["--enable-threads", "--py-call-osafterfork"],
            marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="uWSGI itself aborts (unbit/uwsgi#2710)"),
        ),
        ["--enable-threads", "--py-call-uwsgi-fork-hooks"],
    ],
    ids=str,
)
def test_workers_renew_their_locks(request, redis_url, tmp_path, options):
    """A worker that uWSGI forks from a process that has used locks renews its lock."""
    port = free_port(request)
    place, module = f"127.0.0.1:{port}", "tests.core.processes.uwsgi_app"
    command = [UWSGI, "--http-socket", place, "--module", module, "--master", "--need-app", "--processes", "2"]
    command += ["-H", sys.prefix, "--pythonpath", str(Path(__file__).parents[3]), *options]
    child = Child(command, output=tmp_path / "log", env={"REDLOCK_URL": redis_url})
    try:
        wait_until(lambda: answers(port), child=child, timeout=60, what="uWSGI")
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
                assert response.read() == b"forked True lost False", child.log()
    finally:
        child.kill()
