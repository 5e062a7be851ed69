"""The error messages when an optional package is not installed."""

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
from importlib import import_module

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=sys.argv[1])

sys.meta_path.insert(0, Missing())
exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("missing", "program", "message"),
    [
        ("celery", "import django_redlock.celery", 'needs Celery: pip install "django-redlock[celery]"'),
        ("django", "from django_redlock import rlock", "django_redlock.rlock needs Django: pip install Django."),
        (
            "kazoo",
            "from django_redlock.backends.zookeeper import ZooKeeperBackend as Z; Z('127.0.0.1:1')",
            'pip install "django-redlock[zookeeper]"',
        ),
    ],
)
def test_says_what_to_install(missing, program, message):
    """The error names the extra to install, not only the module."""
    command = [sys.executable, "-c", _WITHOUT, missing, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
