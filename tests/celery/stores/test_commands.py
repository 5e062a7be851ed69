"""The commands of an operator for tasks: list them, and release stuck ones."""

from django_redlock import locks
from tests.django.management.command_result import Done


def command(*args):
    return Done(*args, "--format", "json").json


def test_list_and_release_a_task(tasks, seen, held):
    """redlock_list and redlock_release --task select the locks of one task, also beside a NAME, and show its state."""
    first = tasks.long.apply_async((seen.name,), queue="nobody")
    tasks.executed.apply_async((seen.name,), queue="nobody")
    [row] = [row for row in command("redlock_list", "--task", tasks.long.name) if seen.name in row["name"]]
    assert (row["name"], row["kind"], row["label"]) == (f"long:{seen.name}", "task", tasks.long.name)
    assert (row["extra"]["task_id"], row["extra"]["state"]) == (first.id, "queued")
    assert command("redlock_release", row["name"], f"*{seen.name}", "--task", "another", "--yes") == []
    with locks["default"].lock(f"plain:{seen.name}"):
        results = command("redlock_release", "--task", tasks.long.name, "--yes")
        assert held(f"plain:{seen.name}") is not None
    assert [row["result"] for row in results if row["name"] == f"long:{seen.name}"] == ["released"]
    assert held(f"executed:{seen.name}") is not None
    assert not tasks.long.apply_async((seen.name,), queue="nobody").duplicate
