"""The decorator keeps the type of the task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")


def test_types_of_protected_tasks():
    """mypy --strict finds the errors that `typed.py` expects, and no others."""
    here = Path(__file__).with_name("typed.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", str(here)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here.parents[2])
    assert found.returncode == 0, found.stdout + found.stderr
