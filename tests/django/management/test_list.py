"""`redlock_list`: the selection, the order and the format of locks."""

import io
import re
import time
from contextlib import ExitStack

import pytest
from django.core.management import call_command

from tests.django.conftest import REDIS, UNREACHABLE
from tests.django.management.command_result import Done


def test_list(stores):
    """The list has a line for each lock of every store, with the label and the fields of its owner."""
    with stores["default"].lock("stock:42", owner={"label": "till 7", "user": "ada"}):
        time.sleep(0.002)  # times are listed in milliseconds
        with stores["memory"].lock("invoice:7"):
            done = Done("redlock_list")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["STORE", "NAME"],
        ["default", "stock:42"],  # held for longer
        ["memory", "invoice:7"],
    ]
    assert "till 7 user=ada" in done.out


def test_list_without_locks_names_the_stores(stores):
    assert Done("redlock_list").out == "no locks found in default, memory\n"
    assert Done("redlock_list", "--using", "memory").out == "no locks found in memory\n"
    assert listed() == []


@pytest.mark.parametrize("backend", [REDIS, "docs.examples.file_backend.FileBackend"])
def test_list_of_a_store_that_is_not_listed(stores, settings, tmp_path, backend):
    """The locks of other stores are listed with exit code 1, and the command doesn't say that there are no locks."""
    location = UNREACHABLE if backend is REDIS else str(tmp_path / "locks.json")
    settings.REDLOCK = {**settings.REDLOCK, "silent": {"BACKEND": backend, "LOCATION": location}}
    done = Done("redlock_list")
    assert (done.code, done.out) == (1, "")
    assert "could not list all locks of silent: " in done.err
    with stores["default"].lock("stock"):
        done = Done("redlock_list", format="json")
    assert (done.code, [row["name"] for row in done.json]) == (1, ["stock"])


def listed(*arguments):
    """Return the rows of the list."""
    return Done("redlock_list", *arguments, "--format", "json").json


def test_list_order(stores, own_thread):
    """Locks with waiters come first, also with a limit, then the longest held, and --sort changes the order."""
    backend = stores["default"]
    with ExitStack() as held:
        for name in ("calm", "busy", "new"):
            held.enter_context(backend.lock(name))
            time.sleep(0.002)  # times are listed in milliseconds
        waiter = own_thread(lambda: backend.lock("busy", on_lost="warn").acquire(timeout=120))
        own_thread.until(lambda: backend.describe("busy").waiters)
        rows = {order: listed(*order.split()) for order in ("", "--limit 1", "--sort name", "--sort held")}
    waiter.join()
    assert {order: [row["name"] for row in each] for order, each in rows.items()} == {
        "": ["busy", "calm", "new"],
        "--limit 1": ["busy"],
        "--sort name": ["busy", "calm", "new"],
        "--sort held": ["calm", "busy", "new"],
    }
    assert [row["waiters"] for row in rows[""]] == [1, 0, 0]
    assert rows[""][0]["longest_wait"] > 0


def on_a_terminal(monkeypatch, width, *args):
    """Return the output of a command on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    out.isatty = lambda: True
    call_command(*args, stdout=out, force_color=True)
    return out.getvalue()


def test_list_fits_the_terminal(stores, monkeypatch):
    """Long names are shortened in the middle, unless --wide is given."""
    name = f"order:{'0' * 90}:17"
    with stores["default"].lock(name), stores["default"].lock("short"):
        for width in (70, 80, 100):
            lines = re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(monkeypatch, width, "redlock_list")).splitlines()
            assert max(map(len, lines)) <= width
            assert any(re.search(r"order:0+…0+:17", line) for line in lines)
        assert name in on_a_terminal(monkeypatch, 80, "redlock_list", "--wide")
        assert name in Done("redlock_list").out  # a pipe has no width


def test_list_leaves_out_columns_that_say_nothing(stores):
    backend = stores["default"]
    with backend.lock("a"), backend.lock("b"):
        assert heading() == "STORE NAME HOLDER HELD FOR LEFT"
        with backend.rwlock("c").read:
            assert heading() == "STORE NAME KIND HOLDER HELD FOR LEFT"
            assert Done("redlock_list", "c").out.splitlines()[1].split()[:4] == ["default", "c", "rwlock", "read"]
            [row] = listed("--state", "read")
            assert (row["name"], row["state"]) == ("c", "read")


def heading(*args):
    """Return the first line that redlock_list prints, with single spaces."""
    return " ".join(Done("redlock_list", *args).out.splitlines()[0].split())


def test_list_formats(stores):
    """JSON has the facts of each lock, and stdout has nothing else."""
    with stores["default"].lock('stock,"42"\n'):
        [row] = listed()
    assert row["name"] == 'stock,"42"\n'
    assert 0 < row["ttl"] <= 30
    assert row["digest"]
    assert "token" not in row


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["ck:4"], ["stock:42"]),
        (["st*"], ["stock:42", "stock:7"]),
        (["--using", "memory"], ["invoice:7"]),
        (["--kind", "semaphore"], []),
        (["--host", "elsewhere"], []),
        (["--limit", "1", "--using", "default", "stock:7"], ["stock:7"]),
    ],
)
def test_list_filters(stores, args, names):
    """Search, store, kind, host and limit select locks."""
    backend = stores["default"]
    with backend.lock("stock:42"), backend.lock("stock:7"), stores["memory"].lock("invoice:7"):
        assert [row["name"] for row in listed(*args)] == names


def test_list_filters_before_the_limit(stores):
    """--limit counts only the locks that the other options select."""
    backend = stores["default"]
    with ExitStack() as held:
        for name in ("a", "b"):
            held.enter_context(backend.lock(name))
            held.enter_context(backend.semaphore(f"{name}:permits", limit=2))
            held.enter_context(backend.rwlock(f"{name}:pages").read)
        for kind in ("mutex", "semaphore", "rwlock"):
            done = Done("redlock_list", "--kind", kind, "--limit", "1", "--format", "json")
            assert [row["kind"] for row in done.json] == [kind]
            assert "there are more than 1" in done.err
