"""`redlock_list | head -1`: the reader of a command's output ends first."""

import contextlib
import os
import subprocess
import sys

import pytest

from tests.django.management.conftest import MANAGE

COMMANDS = [("redlock_list", "--watch", "0.1"), ("redlock_list", "--format", "json"), ("redlock_check",)]


pytestmark = pytest.mark.usefixtures("environment")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_ends_quietly(command):
    """A command whose reader has ended ends without an error message, with the exit code of SIGPIPE."""
    assert ended([sys.executable, MANAGE, *command, "--using", "default"]) == (141, "")


@pytest.mark.parametrize("command", ["redlock_list", "redlock_check", "redlock_release --yes stock"])
def test_without_standard_output(backend, command):
    """A command whose standard output is closed does its work, with the same exit code."""
    with backend.lock("stock", on_lost="warn"):
        shell = ["bash", "-c", 'exec "$@" >&-', "bash", sys.executable, str(MANAGE), *command.split()]
        words = [*shell, "--using", "default"]
        done = subprocess.run(words, cwd=MANAGE.parent, capture_output=True, timeout=120, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
        assert (backend.describe("stock") is None) == ("release" in command)


def ended(command):
    """Return exit code and stderr of a command whose reader ended before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(command, cwd=MANAGE.parent, text=True, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        try:
            return process.wait(120), process.stderr.read()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
