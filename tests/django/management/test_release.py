"""`redlock_release`: its question, its releases and its log."""

import io
import socket

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User, UserManager
from django.core.management import CommandError, call_command

from tests.django.management.command_result import Done


@pytest.fixture
def held(stores):
    """`held()`: which are left of three locks of the default store."""
    locks = {name: stores["default"].lock(name, on_lost="warn") for name in ("stock:1", "stock:2", "invoice")}
    assert all(lock.acquire() for lock in locks.values())
    return lambda: sorted(name for name, lock in locks.items() if lock.locked())


def released(*arguments):
    """Return the rows of a release without a question."""
    return Done("redlock_release", *arguments, "--yes", "--format", "json").json


def test_release_asks_and_takes_yes(held, answer):
    """The command shows what it would release, and releases after a yes."""
    answer("y")
    done = Done("redlock_release", "stock:1")
    assert "Release 1 lock by force? [y/N]" in done.out
    assert "released" in done.out
    assert (done.code, held()) == (0, ["invoice", "stock:2"])


@pytest.mark.parametrize("text", ["", "n", "yeah", "nothing at all"])
def test_release_takes_no(held, answer, text):
    """Any answer but a yes, and an end of input, releases nothing."""
    answer(text)
    with pytest.raises(CommandError, match="nothing was released"):
        call_command("redlock_release", "stock:1", stdout=io.StringIO())
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_by_pattern(held):
    """A glob releases all locks that match."""
    assert [row["result"] for row in released("stock:*")] == ["released"] * 2
    assert held() == ["invoice"]


def test_release_of_a_name_that_is_a_pattern(stores):
    """If nothing matches, the command says that it has taken the name for a pattern."""
    with stores["default"].lock("stock[1]"):
        done = Done("redlock_release", "stock[1]", "other", "--yes")
        assert done.out.splitlines()[1:] == ["Taken as a pattern: stock[1]; see --exact."]
    assert "pattern" not in Done("redlock_release", "other", "--yes").out


def test_release_names_the_stores_that_it_did_not_search(stores):
    """A command that finds nothing names the stores that it has searched, and those that it has not."""
    with stores["memory"].lock("stock:1"):
        missed = Done("redlock_release", "stock:1")
        assert (missed.code, missed.out) == (0, "Nothing to release in default. Not searched: memory; see --using.\n")
        assert Done("redlock_release", "stock:1", "--using", "memory", "--dry-run", "--format", "json").json
    everywhere = Done("redlock_release", "stock:1", "--using", "default", "--using", "memory")
    assert everywhere.out == "Nothing to release in default, memory.\n"


def test_release_finds_the_lock_and_its_stripes(stores):
    """A name selects the lock of that name and the stripes of that name, also while both are held."""
    plain = stores["default"].lock("stock:17", on_lost="warn")
    stripe = stores["default"].striped("stock:17", 4, on_lost="warn")
    assert plain.acquire()
    assert stripe.acquire()
    kinds = {row["kind"]: row["result"] for row in released("stock:17")}
    assert kinds == {"mutex": "released", "striped": "released"}
    assert not plain.locked()
    assert not stripe.locked()


def test_release_by_kind_and_state(stores, held):
    side = stores["default"].rwlock("prices", on_lost="warn").write
    assert side.acquire()
    assert released("prices", "--state", "read") == released("*", "--kind", "semaphore") == []
    [row] = released("--state", "write", "--exact")
    assert (row["name"], row["state"]) == ("prices", "write")
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_by_task(stores, held):
    """--task leaves out locks that another task holds, too."""
    found = ["redlock_release", "--dry-run", "--format", "json", "--task"]
    owners = [{"label": f"shop.{each}", "task_id": each} for each in ("confirm", "pay")]
    confirm, pay = (stores["default"].semaphore("gate", limit=2, owner=owner) for owner in owners)
    with confirm:
        with pay:
            assert [Done(*found, task).json for task in ("shop.confirm", "shop.pay")] == [[], []]
        assert [row["name"] for row in Done(*found, "shop.confirm").json] == ["gate"]


@pytest.mark.django_db
def test_release_is_logged(held, caplog, monkeypatch):
    """A release is logged, and recorded in the admin's log if the system user is a Django user."""
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    Done("redlock_release", "stock:1", "--yes")
    assert "'stock:1' in 'default' was released by force by ada" in caplog.text
    assert not LogEntry.objects.exists()
    user = User.objects.create_user("ada")
    Done("redlock_release", "stock:2", "--yes")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (user, "default:stock:2")
    assert f"Released by force by ada on {socket.gethostname()}. Held by" in entry.change_message


@pytest.mark.django_db
def test_release_goes_on_without_a_user(held, monkeypatch):
    """A user model whose names are no text does not stop a release half-way."""
    monkeypatch.setattr(UserManager, "get_by_natural_key", lambda _self, name: int(name))
    released("stock:*")
    assert held() == ["invoice"]


def test_release_dry_run(held):
    """--dry-run shows the locks and releases nothing."""
    assert "Would release 3 locks" in Done("redlock_release", "*", "--dry-run").out
    assert [row["result"] for row in released("*", "--dry-run")] == [None] * 3
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_older_than(stores, held, redis_server):
    """--older-than leaves out younger locks and those without a start."""
    backend = stores["default"]
    with backend.lock("old", owner={"since": 1.0}), backend.lock("new"), redis_server.client() as redis:
        redis.set("redlock:{unknown}", "theirs", px=30_000)
        done = Done("redlock_release", "*", "--older-than", "1h", "--dry-run", "--format", "json")
    assert [row["name"] for row in done.json] == ["old"]


def test_release_only_what_was_shown(stores, held, monkeypatch):
    """A lock that changes hands before the answer is not released, and the exit code says so."""
    backend = stores["default"]
    other = backend.lock("stock:1")

    def readline():
        backend.force_release("stock:1")
        assert other.acquire(blocking=False)
        return "yes\n"

    monkeypatch.setattr("sys.stdin", type("Operator", (), {"readline": staticmethod(readline)}))
    done = Done("redlock_release", "stock:1")
    assert (done.code, other.owned()) == (1, True)
    assert "has a new holder, not released" in done.out
    other.release()


def test_release_with_a_store_down(one_down, held):
    """With a store down the locks of others are released, and the exit code is 1."""
    done = Done("redlock_release", "stock:1", "--using", "broken", "--using", "default", "--yes")
    assert (done.code, held()) == (1, ["invoice", "stock:2"])
    assert "Connection refused" in done.err
