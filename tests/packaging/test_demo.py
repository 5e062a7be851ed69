"""The demo: its command line, its compose file, and its load test."""

import re

import pytest

from testproject.demo import load
from testproject.demo.__main__ import arguments
from tests.docs.pages import ROOT

VARIABLE = re.compile(r"TESTPROJECT_\w+")


def test_compose_file_names_what_the_project_reads(monkeypatch):
    """Each variable and option in compose.yaml is one that the demo has."""
    compose = (ROOT / "compose.yaml").read_text()
    read = {name for file in (ROOT / "testproject").rglob("*.py") for name in VARIABLE.findall(file.read_text())}
    assert VARIABLE.findall(compose)
    assert set(VARIABLE.findall(compose)) <= read
    [command] = re.findall(r'command: \["python", "-m", "testproject.demo", (.+)\]', compose)
    monkeypatch.setattr("sys.argv", ["demo", *re.findall(r'"(.+?)"', command)])
    assert arguments().nodes == len(re.findall(r"^  node\d:", compose, re.MULTILINE))


@pytest.mark.parametrize("way", load.WAYS)
def test_load_test_counts_every_order(way, redis_url):
    """With each kind of lock no order overwrites another, and every release is timed."""
    result = load.run(way, redis_url, clients=8, orders=40)
    assert (result.left, len(result.releases)) == (0, 40)
    assert result.commands > 0
