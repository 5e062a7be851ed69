"""A user's code passes strict type checkers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
VIEWS, *TASKS = (TESTS / folder / "typed.py" for folder in ("django", "celery", "tasks"))
CACHE = "--cache-dir=.mypy_cache/views"  # its own: another mypy that writes at this moment would lock it
CHECKERS = {
    "mypy": ["mypy", "--strict", "--config-file=", CACHE, "--follow-imports=silent", VIEWS, *TASKS],
    "pyright": ["pyright", "--warnings", "--pythonpath", sys.executable, VIEWS],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_types(checker):
    """The type checker finds the errors that `typed.py` expects, and no others."""
    pytest.importorskip(checker)
    command = [sys.executable, "-m", *map(str, CHECKERS[checker])]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
