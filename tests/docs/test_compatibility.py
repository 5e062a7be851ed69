"""The versions in the documentation: those that the tests were run with, and those that pip accepts."""

import json
import re

import pytest

from scripts import matrix
from tests.docs.pages import DOCS, ROOT

REQUIREMENT = re.compile(r"^(?:celery = |    )(Django|redis|celery)>=([\d.]+),<(\d+)$", re.MULTILINE)
NAMES = {"Django": "Django", "redis": "redis-py", "celery": "Celery"}


def rows_of_page():
    table = matrix.PAGE.read_text().partition(".. list-table::\n   :header-rows: 1\n\n")[2]
    rows = re.findall(r"^   \* -(.*)\n((?:     - .*\n)+)", table, re.MULTILINE)
    return [[first.strip(), *re.findall(r"- (.*)", rest)] for first, rest in rows]


def test_only_rows_that_were_run(tmp_path, monkeypatch):
    """`make matrix` writes the rows that were run to the page, and leaves out all others."""
    monkeypatch.setattr(matrix, "PLACE", tmp_path)
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "page.rst")
    monkeypatch.setattr("sys.argv", ["matrix.py", "--rows", "none"])
    versions = {"Python": "3.11.7", "Django": "5.2.1", "celery": "5.4.0", "redis": "5.2.1", "server": "Redis 6.2.14"}
    (tmp_path / "oldest.json").write_text(json.dumps([versions, 17]))
    (tmp_path / "newest.json").write_text(json.dumps([{}, 0, [], "no Python 3.14 here"]))
    assert matrix.main() == 0
    assert rows_of_page() == [[*matrix.HEADINGS], ["oldest", *versions.values(), "17 passed"]]


@pytest.mark.parametrize(("package", "lowest", "limit"), REQUIREMENT.findall((ROOT / "setup.cfg").read_text()))
def test_versions_that_pip_accepts(package, lowest, limit):
    """The page about installation names the lowest version of a package, and the first that pip refuses."""
    page = (DOCS / "installation.rst").read_text()
    assert f"   * - {NAMES[package]}\n     - {lowest} or newer, below {limit}" in page
