"""The options of ``single_instance_task`` stand once, in `TaskOptions`."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

from django_redlock import celery, tasks
from django_redlock.single_instance.options import TaskOptions, meaning_of

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "celery.rst"


def test_both_decorators_and_the_documentation_have_these_options():
    """Signatures, docstrings and the table in the documentation agree with the class."""
    page = " ".join(PAGE.read_text().split())
    options = {each.name: each.default for each in fields(TaskOptions)}
    for decorator, left_out in (
        (celery.single_instance_task, set()),
        (tasks.single_instance_task, {"conflict_retries"}),
    ):
        _, *parameters = inspect.signature(decorator).parameters.values()
        assert {each.name: each.default for each in parameters} == {
            name: default for name, default in options.items() if name not in left_out
        }
        assert all(meaning_of(each.name) in decorator.__doc__ for each in parameters)
    for name, default in options.items():
        shown = repr(default).replace("'", '"')
        assert re.search(rf"\* - ``{name}`` - [^*]*? - ``{shown}`` - {re.escape(meaning_of(name))}", page), name
