"""The page about commands has every command and option, and its examples work."""

import re
import shlex

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

from tests.docs.pages import DOCS, PAGES, ROOT, examples, headings

PAGE = DOCS / "reference" / "commands.rst"
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
    assert sorted(headings(PAGE)) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_a_command(name):
    section = PAGE.read_text().partition(f"\n{name}\n---")[2]
    section = re.split(r"\n\w+\n---", section, maxsplit=1)[0]
    djangos = options(BaseCommand().create_parser("manage.py", name))
    assert set(re.findall(r"^   \* - ``(--[\w-]+)``", section, re.MULTILINE)) == options(parser_of(name)) - djangos


@pytest.mark.parametrize(("page", "words"), EXAMPLES, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_examples_can_be_typed(page, words):
    """Every command line in the documentation is accepted by its command."""
    own = words[: words.index("--")] if "--" in words else words
    parser_of(own[0]).parse_args(own[1:])
