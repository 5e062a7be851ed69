"""The demo's command line."""

import pytest

from testproject.demo.__main__ import arguments


@pytest.mark.parametrize("option", ["--items", "--buyers", "--at-once"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_numbers_that_make_no_sense(monkeypatch, capsys, option, value):
    """A sale of nothing, or to nobody: an error that names the option, before anything is started."""
    monkeypatch.setattr("sys.argv", ["demo", option, value])
    with pytest.raises(SystemExit) as ended:
        arguments()
    assert ended.value.code == 2
    assert option in capsys.readouterr().err
