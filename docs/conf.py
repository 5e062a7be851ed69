"""Sphinx: `make docs`. Warnings are errors there, so that a link or a name that has gone is noticed."""

import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "_ext"))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

from django_redlock import __version__

django.setup()  # models are documented from their docstrings too

project = "django-redlock"
author = copyright = "The django-redlock authors"
version = release = __version__

extensions = ["sphinx.ext.autodoc", "bars", "sequence"]
exclude_patterns = ["_build", "_ext"]
default_role = "py:obj"
highlight_language = "python"
add_module_names = False
html_theme = "furo"
html_title = f"django-redlock {version}"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

# Parameters that only refuse misspelled arguments, and the types of keyword arguments that a table of options explains.
_REFUSALS = re.compile(r"(?:, )?\*\*?\w+: [~.\w]*Never|misplaced: [~.\w]*InitVar\[None\] = None, ")
_KEYWORDS = re.compile(r"(\*\*\w+): [~.\w]*Unpack\[[~.\w]+\]")


def plain_signature(*event: Any) -> tuple[str | None, str | None]:
    """Return signature and return type of a documented object as users see them."""
    *_, signature, returns = event
    return _KEYWORDS.sub(r"\1", _REFUSALS.sub("", signature or "")).replace("(, ", "(*, ") or None, returns


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", plain_signature)
