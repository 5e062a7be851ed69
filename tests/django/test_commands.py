"""`redlock_list`, `redlock_release` and `redlock_check`, on real stores."""

import csv
import io
import json
import re
import socket
import time
from contextlib import ExitStack

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from tests.django.conftest import REDIS


class Done:
    """How a command ended, and what it wrote."""

    def __init__(self, *args, **options):
        out, err = io.StringIO(), io.StringIO()
        self.code = 0
        try:
            call_command(*args, stdout=out, stderr=err, **options)
        except SystemExit as end:
            self.code = end.code
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def answer(monkeypatch):
    """`answer("y")`: what the operator types."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))


# ── list ─────────────────────────────────────────────────────────────────────────────────────


def test_list(stores):
    """A line for each lock of every store, with its holder."""
    with stores["default"].lock("stock:42", owner="till 7"), stores["memory"].lock("invoice:7"):
        done = Done("redlock_list")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["STORE", "NAME"],
        ["default", "stock:42"],  # held for longer
        ["memory", "invoice:7"],
    ]
    assert "till 7" in done.out
    assert Done("redlock_list").out == "no locks\n"


def test_list_of_long_leases(stores):
    """A lease that ends in minutes is told in minutes."""
    with stores["memory"].lock("brief", ttl=40), stores["memory"].lock("long", ttl=240):
        _, brief, long = Done("redlock_list", "--sort", "left").out.splitlines()
    assert re.search(r"  (3\d|40)\.\d s$", brief)
    assert re.search(r"  (3 min \d+ s|4 min)$", long)


@pytest.fixture
def trouble(stores, own_thread):
    """Three locks of the default store: ``calm`` is the oldest, ``busy`` has a waiter, ``new`` is the youngest."""
    backend = stores["default"]
    with ExitStack() as held:
        for name in ("calm", "busy", "new"):
            held.enter_context(backend.lock(name))
            time.sleep(0.002)  # times are listed in milliseconds
        waiter = own_thread(lambda: backend.lock("busy", on_lost="warn").acquire(timeout=20))
        own_thread.until(lambda: backend.describe("busy").waiters)
        yield backend
    waiter.join()


@pytest.mark.parametrize(
    ("order", "names"),
    [("trouble", ["busy", "calm", "new"]), ("name", ["busy", "calm", "new"]), ("held", ["calm", "busy", "new"])],
)
def test_list_order(trouble, order, names):
    """Locks with waiters come first, then those that are held longest; --sort changes that."""
    rows = Done("redlock_list", "--sort", order, "--format", "json").json
    assert [row["name"] for row in rows] == names
    assert {row["name"]: row["waiters"] for row in rows} == {"busy": 1, "calm": 0, "new": 0}
    assert next(row for row in rows if row["waiters"])["longest_wait"] > 0


def test_list_finds_trouble_behind_the_limit(trouble):
    """A limit leaves out locks without waiters first."""
    [row] = Done("redlock_list", "--limit", "1", "--format", "json").json
    assert row["name"] == "busy"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(monkeypatch, width, *args):
    """What a command writes to a terminal that is so wide."""
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    call_command(*args, stdout=out, force_color=True)
    return out.getvalue()


def test_list_fits_the_terminal(stores, monkeypatch):
    """Long names are shortened in the middle, unless --wide is given."""
    name = f"order:{'0' * 90}:17"
    with stores["default"].lock(name), stores["default"].lock("short"):
        for width in (60, 80, 100):
            lines = re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(monkeypatch, width, "redlock_list")).splitlines()
            assert max(map(len, lines)) <= width
            assert any(re.search(r"order:0+…0+:17", line) for line in lines)
        assert name in on_a_terminal(monkeypatch, 80, "redlock_list", "--wide")
        assert name in Done("redlock_list").out  # a pipe has no width


def test_list_colours_trouble(trouble, monkeypatch):
    """The number of waiters is coloured, and a lease that is near its end."""
    with trouble.lock("dying", ttl=30, auto_renew=False) as lock:
        lock.extend(5)
        lines = on_a_terminal(monkeypatch, 100, "redlock_list").splitlines()
    assert [re.search(r"(busy|calm|new|dying)", line)[1] for line in lines[1:] if "\x1b[" in line] == ["busy", "dying"]


def test_list_leaves_out_equal_columns(stores):
    """A column with the same value in every row says nothing; of one row those without a value."""
    backend = stores["default"]
    with backend.lock("a"), backend.lock("b"):
        assert Done("redlock_list").out.splitlines()[0].split() == ["NAME", "HOLDER", "HELD", "FOR", "LEFT"]
        with backend.rwlock("c").read:
            assert Done("redlock_list").out.splitlines()[0].split() == [
                "NAME",
                "KIND",
                "STATE",
                "HOLDER",
                "HELD",
                "FOR",
                "LEFT",
            ]
            assert Done("redlock_list", "c").out.splitlines()[1].split()[:4] == ["default", "c", "rwlock", "read"]
            [row] = Done("redlock_list", "--state", "read", "--format", "json").json
            assert (row["name"], row["state"]) == ("c", "read")


def test_list_fields(stores):
    """``ttl`` is the length of the lease, ``remaining`` what is left, ``since`` a timestamp; numbers are rounded."""
    with stores["default"].lock("x", ttl=20, auto_renew=False) as lock:
        lock.extend(10)
        [row] = Done("redlock_list", "--format", "json").json
    assert row["ttl"] == 20
    assert 9 < row["remaining"] <= 10
    assert abs(row["since"] + row["held"] - time.time()) < 5
    assert all(round(row[field], 3) == row[field] for field in ("held", "remaining", "since"))


def test_list_formats(stores):
    """JSON and CSV hold the same facts, and nothing else is on stdout."""
    with stores["default"].lock('stock,"42"\n'):
        [row] = Done("redlock_list", format="json").json
        [line] = csv.DictReader(io.StringIO(Done("redlock_list", format="csv").out))
    assert row["name"] == line["name"] == 'stock,"42"\n'
    assert 0 < row["ttl"] <= 30
    assert row["digest"] == line["digest"]
    assert "token" not in row
    assert Done("redlock_list", format="json").json == []


def test_list_csv_has_all_fields(stores):
    """The columns are the same whatever is held, and hold what only some of the locks have; lists are JSON."""
    head = Done("redlock_list", format="csv").out
    with stores["default"].lock("a"), stores["default"].lock("b", owner={"user": "ada"}):
        done = Done("redlock_list", format="csv")
    assert done.out.startswith(head)
    plain, told = csv.DictReader(io.StringIO(done.out))
    assert [json.loads(row["extra"]) for row in (plain, told)] == [{}, {"user": "ada"}]
    assert len(json.loads(told["holders"])) == 1


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
    """Search, store, kind, host and limit narrow the list."""
    backend = stores["default"]
    with backend.lock("stock:42"), backend.lock("stock:7"), stores["memory"].lock("invoice:7"):
        assert [row["name"] for row in Done("redlock_list", *args, "--format", "json").json] == names


def test_list_says_what_it_left_out(stores):
    """More locks than the limit: said on stderr."""
    with stores["default"].lock("a"), stores["default"].lock("b"):
        done = Done("redlock_list", "--limit", "1")
    assert "there are more than 1" in done.err


def test_list_with_a_store_down(one_down):
    """The others are listed, and the exit code is 1."""
    with one_down["default"].lock("stock"):
        done = Done("redlock_list", format="json")
    assert (done.code, [row["name"] for row in done.json]) == (1, ["stock"])
    assert "broken could not be asked" in done.err


def test_names_do_not_reach_the_terminal(stores):
    """Escape sequences and line breaks of a name or an owner are shown, not obeyed."""
    with stores["default"].lock("a\x1b[31m\nb", owner="x\x1b]0;pwned\x07"):
        done = Done("redlock_list")
    assert "\x1b" not in done.out
    assert r"a\x1b[31m\nb" in done.out
    assert len(done.out.splitlines()) == 2


def test_unknown_store(stores):
    """A store that isn't configured is an error."""
    with pytest.raises(CommandError, match="no such store: nowhere"):
        call_command("redlock_list", "--using", "nowhere")


# ── release ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def held(stores):
    """Three locks of the default store."""
    locks = {name: stores["default"].lock(name, on_lost="warn") for name in ("stock:1", "stock:2", "invoice")}
    assert all(lock.acquire() for lock in locks.values())
    return lambda: sorted(name for name, lock in locks.items() if lock.locked())


def test_release_asks_and_takes_yes(held, answer):
    """It shows what it would release, and releases after a yes."""
    answer("y")
    done = Done("redlock_release", "stock:1")
    assert "Release 1 lock by force? [y/N]" in done.out
    assert "released" in done.out
    assert (done.code, held()) == (0, ["invoice", "stock:2"])


@pytest.mark.parametrize("text", ["", "n", "yeah", "nothing at all"])
def test_release_takes_no(held, answer, text):
    """Anything but a yes is a no, an end of input too."""
    answer(text)
    with pytest.raises(CommandError, match="nothing was released"):
        call_command("redlock_release", "stock:1", stdout=io.StringIO())
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_by_pattern(held):
    """A glob releases all that match it."""
    done = Done("redlock_release", "stock:*", "--yes", "--format", "json")
    assert {row["name"]: row["result"] for row in done.json} == {"stock:1": "released", "stock:2": "released"}
    assert held() == ["invoice"]


def test_release_exact(stores, held):
    """With --exact a star is a star."""
    assert "Nothing to release" in Done("redlock_release", "--exact", "stock:*", "--yes").out
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_finds_stripes(stores, answer):
    """The name of a striped lock means its stripes; with --exact only a lock of that name."""
    lock = stores["default"].striped("stock:17", 4, on_lost="warn")
    assert lock.acquire()
    assert "Nothing to release" in Done("redlock_release", "stock:17", "--exact", "--yes").out
    [row] = Done("redlock_release", "stock:17", "--yes", "--format", "json").json
    assert (row["kind"], row["result"]) == ("striped", "released")
    assert not lock.locked()


def test_release_by_kind_and_state(stores, held):
    """--kind and --state narrow what is released."""
    side = stores["default"].rwlock("prices", on_lost="warn").write
    assert side.acquire()
    assert "Nothing to release" in Done("redlock_release", "prices", "--state", "read", "--yes").out
    assert "Nothing to release" in Done("redlock_release", "*", "--kind", "semaphore", "--yes").out
    [row] = Done("redlock_release", "--state", "write", "--yes", "--format", "json").json
    assert (row["name"], row["state"]) == ("prices", "write")
    assert held() == ["invoice", "stock:1", "stock:2"]


@pytest.mark.django_db
def test_release_is_logged(held, caplog, monkeypatch):
    """As the admin's: in the log, and in the admin's log of changes where the system's user is a user there too."""
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    Done("redlock_release", "stock:1", "--yes")
    assert "'stock:1' in 'default' was released by force by ada" in caplog.text
    assert not LogEntry.objects.exists()
    user = User.objects.create_user("ada")
    Done("redlock_release", "stock:2", "--yes")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (user, "default:stock:2")
    assert f"Released by force by ada on {socket.gethostname()}. Held by" in entry.change_message


def test_release_needs_no_database(held):
    """Without a database (which this test may not use) the lock is released all the same."""
    assert Done("redlock_release", "stock:1", "--yes").code == 0


def test_release_dry_run(held):
    """--dry-run shows and releases nothing."""
    done = Done("redlock_release", "*", "--dry-run")
    assert "Would release 3 locks" in done.out
    assert [row["result"] for row in Done("redlock_release", "*", "--dry-run", "--format", "json").json] == [None] * 3
    assert held() == ["invoice", "stock:1", "stock:2"]


def test_release_older_than(stores, held, redis_server):
    """--older-than leaves alone what was acquired later, or doesn't say when."""
    backend = stores["default"]
    with backend.lock("old", owner={"since": 1.0}), backend.lock("new"), redis_server.client() as redis:
        redis.set("redlock:{unknown}", "theirs", px=30_000)
        done = Done("redlock_release", "*", "--older-than", "1h", "--dry-run", "--format", "json")
    assert [row["name"] for row in done.json] == ["old"]


def test_release_only_what_was_shown(stores, held, monkeypatch):
    """What changes hands while the operator thinks is not released, and the exit code says so."""
    backend = stores["default"]
    other = backend.lock("stock:1")

    def readline():
        backend.force_release("stock:1")
        assert other.acquire(blocking=False)
        return "yes\n"

    monkeypatch.setattr("sys.stdin", type("Operator", (), {"readline": staticmethod(readline)}))
    done = Done("redlock_release", "stock:1")
    assert (done.code, other.owned()) == (1, True)
    assert "changed hands, not released" in done.out
    other.release()


def test_release_with_a_store_down(one_down, held):
    """What can be released is, and the exit code is 1."""
    done = Done("redlock_release", "stock:1", "--using", "broken", "--using", "default", "--yes")
    assert (done.code, held()) == (1, ["invoice", "stock:2"])
    assert "Connection refused" in done.err


def test_release_json_cannot_ask(held):
    """JSON on stdout leaves no room for a question."""
    with pytest.raises(CommandError, match="needs --yes or --dry-run"):
        call_command("redlock_release", "*", "--format", "json")
    assert held() == ["invoice", "stock:1", "stock:2"]


# ── check ────────────────────────────────────────────────────────────────────────────────────


def test_check(stores):
    """All well: exit code 0, and each store is named."""
    done = Done("redlock_check")
    assert done.code == 0
    assert done.out.count("ok  ") == 2
    assert "version" in done.out


def test_check_json(one_down):
    """The same as JSON; a store that is down makes the exit code 2, and says why."""
    done = Done("redlock_check", format="json")
    assert done.code == 2
    assert done.json["default"][0]["ok"]
    assert "Connection refused" in done.json["broken"][0]["problems"][0]


def test_check_finds_eviction(stores, redis_server):
    """A server that may drop locks when its memory runs out is a problem."""
    with redis_server.client() as redis:
        redis.config_set("maxmemory", "100mb")
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            done = Done("redlock_check", "--using", "default")
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("maxmemory", "0")
    assert done.code == 2
    assert "maxmemory-policy is allkeys-lru" in done.out


def test_check_finds_a_replica(stores, redis_server, own_redis, settings):
    """A replica takes no writes: a problem."""
    replica = own_redis("--replicaof", "127.0.0.1", str(redis_server.port))
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": replica.url}}
    done = Done("redlock_check")
    assert done.code == 2
    assert "is a slave, which takes no writes" in done.out


def test_check_fix_loads_scripts(stores, redis_server):
    """--fix loads what is missing."""
    with redis_server.client() as redis:
        redis.script_flush()
    [before] = Done("redlock_check", "--using", "default", format="json").json["default"]
    [after] = Done("redlock_check", "--using", "default", "--fix", format="json").json["default"]
    loaded, total = after["scripts"].split("/")
    assert int(before["scripts"].split("/")[0]) < int(total)  # what counts beside the locks may have loaded its own
    assert loaded == total


def test_check_arm_says_what_it_asserts_and_asks(stores, answer):
    """Arming is an assertion of the operator's: without a yes nothing is armed."""
    answer("no")
    with pytest.raises(CommandError, match="nothing was armed"):
        call_command("redlock_check", "--arm", stdout=io.StringIO(), stderr=io.StringIO())
    done = Done("redlock_check", "--arm", "--yes", "--using", "default")
    assert "no lock is held" in done.err
    assert "armed" in done.err


@pytest.fixture
def new_server(settings, own_redis):
    """A server that nobody has asked for a lock yet, of a store with quarantine."""
    server = own_redis()
    options = {"quarantine": True, "node_timeout": 5}
    settings.REDLOCK = {"default": {"BACKEND": REDIS, "LOCATION": server.url, "OPTIONS": options}}
    return server


def in_service():
    [row] = Done("redlock_check", format="json").json["default"]
    return row["armed"]


def test_check_fix_arms_new_servers(new_server, answer):
    """--fix says what arming asserts, and arms with a yes only."""
    assert not in_service()
    answer("no")
    done = Done("redlock_check", "--fix")
    assert done.code == 1
    assert "no lock is held" in done.err
    assert "not armed: default" in done.err
    assert not in_service()
    with new_server.client() as redis:
        redis.script_flush()
    answer("y")
    done = Done("redlock_check", "--fix")
    assert done.code == 0
    assert ": armed" in done.err
    assert " 0/" not in done.out
    assert in_service()
    again = Done("redlock_check", "--fix")
    assert "no lock is held" not in again.err


def test_check_fix_without_anybody_to_ask(new_server, answer):
    """With JSON nobody is asked: --yes says so beforehand."""
    answer("y")
    done = Done("redlock_check", "--fix", format="json")
    assert (done.code, done.json["default"][0]["armed"]) == (1, False)
    done = Done("redlock_check", "--fix", "--yes", format="json")
    assert (done.code, done.json["default"][0]["armed"]) == (0, True)


def test_check_fix_with_a_store_down(one_down, redis_server):
    """What can't be asked is said, and the others are put right."""
    with redis_server.client() as redis:
        redis.script_flush()
    done = Done("redlock_check", "--fix", format="json")
    assert done.code == 2
    loaded, total = done.json["default"][0]["scripts"].split("/")
    assert loaded == total


def test_check_deploy(stores, settings):
    """--deploy warns of what is dangerous in production, unless that is silenced."""
    assert Done("redlock_check").code == 0
    done = Done("redlock_check", "--deploy", format="json")
    assert done.code == 1
    told = {alias: rows[-1] for alias, rows in done.json.items()}
    assert {row["node"] for row in told.values()} == {"settings"}
    assert "no persistence" in told["default"]["warnings"][0]
    assert "(redlock.W002)" in told["memory"]["warnings"][0]
    printed = Done("redlock_check", "--deploy").out
    assert "others don't see them" in printed
    assert "warning  memory  settings" in printed
    settings.SILENCED_SYSTEM_CHECKS = ["redlock.W002", "redlock.W009"]
    assert Done("redlock_check", "--deploy").code == 0


def test_check_deploy_with_wrong_settings(settings):
    """A store that can't be built is a problem, and no more than one."""
    settings.REDLOCK = {"default": {"BACKEND": REDIS}}
    done = Done("redlock_check", "--deploy", "--fix", format="json")
    assert done.code == 2
    assert len(done.json["default"]) == 1


# ── bench ────────────────────────────────────────────────────────────────────────────────────


def test_bench(stores):
    """Each store is measured both ways, and nothing stays behind."""
    done = Done("redlock_bench", "--rounds", "20", format="json")
    assert [(row["alias"], row["what"], row["rounds"]) for row in done.json] == [
        ("default", "acquire + release", 20),
        ("default", "hand-over", 4),
        ("memory", "acquire + release", 20),
        ("memory", "hand-over", 4),
    ]
    assert all(0 < row["p50"] <= row["p99"] for row in done.json)
    assert stores["default"].held() == []
    assert "hand-over" in Done("redlock_bench", "--rounds", "10", "--using", "memory").out


def test_bench_on_a_terminal(stores):
    """A bar grows while each is measured, and is wiped out in the end, whatever the number of rounds."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    call_command("redlock_bench", rounds=415, using=["memory"], stdout=io.StringIO(), stderr=terminal)
    bars, *rest = terminal.getvalue().split("\r\x1b[K")
    assert "░ memory acquire + release" in bars
    assert "░ memory hand-over" in rest[0]
    assert rest[1:] == [""]


def test_bench_with_a_store_down(one_down):
    """What can't be measured says why, and the exit code is 1."""
    done = Done("redlock_bench", "--rounds", "2", "--using", "broken", "--using", "memory", format="json")
    assert done.code == 1
    assert "Connection refused" in done.err
    assert {row["alias"] for row in done.json} == {"memory"}
