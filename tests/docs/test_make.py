"""The ``make`` targets in the documentation and in the forge's workflow exist."""

import re
import subprocess

import pytest

from tests.docs.pages import PAGES, ROOT

_NAMES = re.compile(r'make bench ARGS="?([a-z][a-z -]*)')
# Read, not imported: that takes the peers, which only `make bench` installs.
BENCHMARKS = re.findall(r"^        (\w+),$", (ROOT / "tests/benchmarks/__main__.py").read_text(), re.MULTILINE)
NAMED = sorted({names for page in PAGES for names in _NAMES.findall(page.read_text())})


@pytest.mark.parametrize("names", NAMED)
def test_bench_by_name(names):
    """`make bench ARGS=…` runs the benchmarks that it names."""
    assert set(names.replace("-", "_").split()) <= set(BENCHMARKS)
    assert f"-m tests.benchmarks {names} " in would_run("bench", f"ARGS={names}")


def test_bench():
    """`make bench` runs all benchmarks, those of Celery, too."""
    told = would_run("bench")
    assert "-m tests.benchmarks " in told
    assert "-m tests.benchmarks.bench_celery " in told


def test_workflow():
    """The forge's jobs run `make` targets that exist, and all tiers and the matrix are among them."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = set(re.findall(r"run: make ([a-z-]+)", workflow))
    assert targets == {"test", "test-rest", "demo", "matrix", "build"}
    for target in targets:
        assert would_run("--assume-old=.venv/system", target)


def would_run(*args):
    command = ["make", "--dry-run", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
