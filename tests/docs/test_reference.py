"""The reference pages list what exists, completely."""

import functools
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest
from django.dispatch import Signal

import django_redlock
from django_redlock import backends, errors, signals
from django_redlock.backends.base import Backend
from django_redlock.backends.redis import RedisBaseBackend
from django_redlock.backends.storage import StorageBackend
from django_redlock.decorators import idempotent
from django_redlock.testing import plugin
from tests.docs.pages import DOCS, options_table

SETTINGS = DOCS / "reference" / "settings.rst"
BASES = {Backend, StorageBackend, RedisBaseBackend}
_ASKED = re.compile(r'settings(?:\.|, ")(REDLOCK_\w+)')
ROW = r"^   \* - ``(\w+)``"
BACKENDS = {page.stem: page for page in (DOCS / "backends").glob("*.rst")}


def backend_class(page) -> type[Backend]:
    """Return the class that a backend's page is about: the first dotted path in it."""
    found = re.search(r"``(django_redlock\.backends\.\w+)\.(\w+)``", page.read_text())
    assert found, f"{page.name} names no class"
    return getattr(import_module(found[1]), found[2])


def keyword_options(function) -> dict[str, str]:
    """Return the keyword-only parameters of `function` with their defaults as source."""
    return {
        name: _written(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _written(default: object) -> str:
    if isinstance(default, functools.partial):  # the clock, which counts suspended time where it can
        return "time.monotonic"
    if callable(default):
        module = default.__module__ or "builtins"
        return f"{module}.{default.__name__}"
    return repr(default).replace("'", '"')


@pytest.mark.parametrize(
    ("page", "label", "function", "named"),
    [
        (SETTINGS, "options-lock", Backend.lock, {}),
        (SETTINGS, "options-all", Backend.__init__, {}),
        (SETTINGS, "options-servers", RedisBaseBackend.__init__, {}),
        (DOCS / "howto" / "idempotency.rst", "options-idempotent", idempotent, {"headers": "HEADERS"}),
    ],
)
def test_options(page, label, function, named):
    """The table of options is the signature, defaults included."""
    assert options_table(page, label) == keyword_options(function) | named


@pytest.mark.parametrize("name", BACKENDS)
def test_options_of_a_backend(name):
    """A backend's page lists the options that it adds to the common ones, defaults included."""
    page = BACKENDS[name]
    own = {}
    for cls in backend_class(page).__mro__:
        if cls is not Backend and "__init__" in vars(cls):
            own = keyword_options(cls) | own
    common = keyword_options(Backend.__init__)
    if issubclass(backend_class(page), RedisBaseBackend):
        common |= keyword_options(RedisBaseBackend.__init__)
    added = {option: default for option, default in own.items() if common.get(option) != default}
    assert options_table(page, f"options-{name}") == added


def test_every_backend_has_a_page():
    found = set()
    for module in pkgutil.iter_modules(backends.__path__):
        classes = inspect.getmembers(import_module(f"{backends.__name__}.{module.name}"), inspect.isclass)
        found |= {cls for _, cls in classes if issubclass(cls, Backend)}
    assert {backend_class(page) for page in BACKENDS.values()} == found - BASES


@pytest.mark.parametrize(
    ("page", "row", "names"),
    [
        ("reference/errors", r"^\.\. autoexception:: (\w+)", errors.__all__),
        ("reference/signals", ROW, [name for name, value in vars(signals).items() if isinstance(value, Signal)]),
        ("howto/testing", ROW, [name for name, each in vars(plugin).items() if isinstance(each, type(plugin.redlock))]),
    ],
    ids=["errors", "signals", "fixtures of the pytest plugin"],
)
def test_page_lists_all(page, row, names):
    """The page lists each of them, and nothing else."""
    listed = re.findall(row, (DOCS / f"{page}.rst").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(names)


def test_every_setting_is_documented():
    """The page of settings names every ``REDLOCK_…`` that the package asks Django for."""
    package = Path(django_redlock.__file__).parent
    asked = {found for file in package.rglob("*.py") for found in _ASKED.findall(file.read_text())}
    assert asked
    assert asked - set(options_table(SETTINGS, "settings-others")) == set()


def test_layout_names_every_module():
    page = (DOCS / "development" / "layout.rst").read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"``([\w/.]+)``", page))))
    package = Path(django_redlock.__file__).parent
    modules = {path.stem if path.stem != "__init__" else path.parent.name for path in package.rglob("*.py")}
    assert modules - named == set()
