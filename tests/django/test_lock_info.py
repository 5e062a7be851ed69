"""The listing of each kind of value that a lock's key may have, written and read by a real Redis."""

import json

OWNER = {"host": "web1", "pid": 7, "since": 1.0, "label": "shop.settle", "task_id": "c0ffee"}
TASK = "{state} - 5a1d {end} - 0 {owner}"


def test_foreign_token_stays_secret(stores, redis_server):
    """A lock of another program shows at most a quarter of its value."""
    with redis_server.client() as redis:
        redis.set("redlock:{theirs}", "0123456789abcdef", px=9000)
    held = stores["default"].describe("theirs")
    assert (held.kind, held.owner.label, held.token_prefix) == ("mutex", "", "0123")
    assert "456789abcdef" not in repr(held)


def test_records_of_tasks(stores, redis_server):
    """A task's lock lists every task with a record, the running one first."""
    waiting = TASK.format(state="queued", end=10**14, owner=json.dumps({**OWNER, "host": "web0"}))
    running = TASK.format(state="running", end=10**14, owner=json.dumps(OWNER))
    with redis_server.client() as redis:
        redis.hset("redlock:{settle}", mapping={"a": waiting, "b": running})
    held = stores["default"].describe("settle")
    assert held.kind == "task"
    assert [(holder.host, holder.extra["state"]) for holder in held.holders] == [
        ("web1", "running"),
        ("web0", "queued"),
    ]
    assert held.owner == held.holders[0]
    assert held.owner.extra["task_id"] == "c0ffee"
