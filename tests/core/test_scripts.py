"""The script files: calls are checked against the headers."""

import re
from importlib import resources

import pytest

from django_redlock.core.flow.scripts import all_scripts, script

NAMES = [each.name for each in all_scripts()]
STANDS_BEFORE_ANOTHER = {"quarantine", "quarantine_replicas", "quarantine_restore"}


def test_scripts_are_found():
    """The scripts of a mutex are found."""
    assert {"mutex_acquire", "mutex_extend", "mutex_release", "describe", "force_release"} <= set(NAMES)


def test_unknown_script():
    """A name without a script raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        script("nonsense")


@pytest.mark.parametrize("name", NAMES)
def test_header(name):
    """The header of each script describes its purpose, its keys, its arguments and its result."""
    lines = script(name).source.decode().splitlines()
    assert lines[0].startswith("-- ")
    for word in ("KEYS", "ARGV", "Returns"):
        assert any(line.startswith(f"-- {word} ") for line in lines), word


@pytest.mark.parametrize("name", sorted(set(NAMES) - STANDS_BEFORE_ANOTHER))
@pytest.mark.parametrize(("word", "field"), [("KEYS", "keys"), ("ARGV", "args")])
def test_numbers_of_keys_and_arguments(name, word, field):
    """The header names as many keys and arguments as the script uses; for scripts on several locks, those of one."""
    body = resources.files("django_redlock.core").joinpath("lua", f"{name}.lua").read_text()
    used = {int(number) for number in re.findall(rf"{word}\[(\d+)\]", body)}
    assert max(used, default=0) <= getattr(script(name), field)
    assert used or getattr(script(name), field) <= 1 or (f"-- {word} 1 lock" in body and "of each other lock" in body)


@pytest.mark.parametrize("name", NAMES)
def test_no_keys_command(name):
    """No script scans all keys or blocks."""
    assert not re.search(r"call\('(KEYS|FLUSH|DEBUG|BLPOP)", script(name).source.decode())
