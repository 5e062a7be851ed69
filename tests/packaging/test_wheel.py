"""The wheel, built from a copy of the tree and installed in a separate environment."""

import re
import shutil
import subprocess
import sys
import textwrap
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from testproject.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
MADE = shutil.ignore_patterns("__pycache__", "*.pyc")


def pip(*arguments, python=sys.executable):
    """Run pip in an environment. A failure shows its output."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(python, program, *arguments, cwd):
    """Return the output of a program in an environment, started outside the source tree."""
    command = [python, "-I", "-W", "error", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "django_redlock", source / "django_redlock", ignore=MADE)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source))
    [built] = target.iterdir()
    return built


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An environment without any package, not even pip."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    return str(directory / "bin" / "python")


def test_wheel_has_every_file(wheel):
    """Every file of the package is in the wheel: scripts, templates, styles and the typing marker too."""
    package = ROOT / "django_redlock"
    files = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {str(file.relative_to(ROOT)) for file in files}


def info(wheel, name):
    """Return the text of a file in the wheel's `.dist-info`."""
    with zipfile.ZipFile(wheel) as archive:
        [path] = [path for path in archive.namelist() if path.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def test_metadata(wheel):
    """The metadata have the name, licence, Python versions, the documentation's extras and the pytest plugin."""
    metadata = HeaderParser().parsestr(info(wheel, "METADATA"))
    assert (metadata["Name"], metadata["License-Expression"]) == ("django-redlock", "BSD-3-Clause")
    assert metadata["Requires-Python"] == ">=3.11"
    versions = {"Python :: 3.11", "Python :: 3.12", "Framework :: Django :: 5.2"}
    assert all(any(each.endswith(version) for each in metadata.get_all("Classifier")) for version in versions)
    assert not re.search(r"\]\((?!https://)", metadata.get_payload()), "a relative link breaks on the index's page"
    extras = {"celery", "django-redis", "zookeeper", "embedded", "prometheus", "dev"}
    assert extras <= set(metadata.get_all("Provides-Extra"))
    plugin = "[pytest11] redlock = django_redlock.testing.plugin"
    assert info(wheel, "entry_points.txt").split() == plugin.split()


def test_works_alone(wheel, empty, tmp_path):
    """Without Django, Celery and redis-py, locks in memory work."""
    pip("install", "--no-compile", "--no-deps", "--no-index", str(wheel), python=empty)
    program = """
        from django_redlock.backends.locmem import LocMemBackend
        backend = LocMemBackend("here", ttl=5)
        with backend.lock("x") as held:
            print(held.owned(), backend.lock("x").acquire(blocking=False))
        print(held.locked())
    """
    assert run(empty, program, cwd=tmp_path) == ["True", "False", "False"]


def requirements(texts, seen=()):
    """Return the distributions, installed here, that these requirements name, and those that these need in turn."""
    wanted = [each for each in map(Requirement, texts) if each.marker is None or each.marker.evaluate({"extra": ""})]
    found = {each.name: distribution(each.name) for each in wanted if each.name not in seen}
    for name, each in list(found.items()):
        found |= requirements(each.requires or (), {*seen, *found, name})
    return found


def test_works_with_what_it_requires(wheel, empty, tmp_path):
    """With its dependencies and nothing else installed, a Django project acquires a lock in Redis."""
    required = HeaderParser().parsestr(info(wheel, "METADATA")).get_all("Requires-Dist")
    [packages] = run(empty, "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    for each in requirements(required).values():  # from here: an index may be out of reach
        for top in {file.parts[0] for file in each.files} - {"..", "__pycache__"}:
            Path(packages, top).symlink_to(each.locate_file(top))
    pip("install", "--no-compile", "--no-index", "--quiet", str(wheel), python=empty)
    program = """
        import sys, django
        from django.conf import settings
        backend = {"BACKEND": "django_redlock.backends.redis.RedisBackend", "LOCATION": sys.argv[1]}
        backend["OPTIONS"] = {"node_timeout": 5}  # the machine may be busy
        settings.configure(REDLOCK={"default": backend}, INSTALLED_APPS=["django_redlock"])
        django.setup()
        from django_redlock import lock, locks
        with lock("x", ttl=5):
            print(*[held.name for held in locks["default"].held()], lock("x").acquire(blocking=False))
    """
    with RedisServer() as redis:
        assert run(empty, program, redis.url, cwd=tmp_path) == ["x", "False"]
