"""A user's code passes strict type checkers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__)
CHECKERS = {
    "mypy": ["mypy", "--strict", "--config-file=", "--follow-imports=silent"],
    "pyright": ["pyright", "--warnings", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_types(checker):
    """The type checker finds the errors that `typed.py` expects, and no others."""
    pytest.importorskip(checker)
    command = [sys.executable, "-m", *CHECKERS[checker], str(HERE.with_name("typed.py"))]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[2], env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
