"""The options of ``single_instance_task``."""

import re
from dataclasses import fields

from django_redlock.single_instance.options import TaskOptions, meaning_of
from tests.docs.pages import DOCS


def test_documentation():
    """The table has each option with its default and its meaning, from which both decorators get their docstrings."""
    page = " ".join((DOCS / "howto" / "celery.rst").read_text().split())
    for option in fields(TaskOptions):
        default = repr(option.default).replace("'", '"')
        row = rf"\* - ``{option.name}`` - [^*]*? - ``{default}`` - {re.escape(meaning_of(option.name))}"
        assert re.search(row, page), option.name
