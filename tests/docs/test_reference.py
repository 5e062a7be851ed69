"""The reference pages list what exists, completely."""

import functools
import inspect
import pkgutil
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser
from django.dispatch import Signal

import django_redlock
from django_redlock import backends, errors, signals
from django_redlock.backends.base import Backend
from django_redlock.backends.redis import RedisBaseBackend
from django_redlock.backends.storage import StorageBackend
from django_redlock.decorators import idempotent
from django_redlock.testing import plugin
from tests.docs.pages import DOCS, PAGES, ROOT, examples, headings, options_table

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


# ── commands ─────────────────────────────────────────────────────────────────────────────────

COMMANDS_PAGE = DOCS / "reference" / "commands.rst"
COMMANDS = sorted(name for name, app in get_commands().items() if app.startswith("django_redlock"))
EXAMPLES = [
    (page, shlex.split(line)[2:])
    for page in [*PAGES, ROOT / "README.md"]
    for example in examples(page.read_text())
    if example.language == "sh"
    for line in example.code.splitlines()
    if line.startswith("python manage.py redlock_")
]


def parser_of(name: str) -> CommandParser:
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    parser.called_from_command_line = False  # an error is raised instead of ending the process
    return parser


def options(parser: CommandParser) -> set[str]:
    return {each.option_strings[-1] for each in parser._actions if each.option_strings}


def test_every_command_has_a_section():
    assert sorted(headings(COMMANDS_PAGE)) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_a_command(name):
    section = COMMANDS_PAGE.read_text().partition(f"\n{name}\n---")[2]
    section = re.split(r"\n\w+\n---", section, maxsplit=1)[0]
    djangos = options(BaseCommand().create_parser("manage.py", name))
    assert set(re.findall(r"^   \* - ``(--[\w-]+)``", section, re.MULTILINE)) == options(parser_of(name)) - djangos


@pytest.mark.parametrize(("page", "words"), EXAMPLES, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_examples_can_be_typed(page, words):
    """Every command line in the documentation is accepted by its command."""
    own = words[: words.index("--")] if "--" in words else words
    parser_of(own[0]).parse_args(own[1:])
