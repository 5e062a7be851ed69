"""The commands of an operator for tasks: list them, and release stuck ones."""

import io
import json

from django.core.management import call_command

from django_redlock import locks


def command(*args):
    """Return the JSON output of a command."""
    out = io.StringIO()
    call_command(*args, "--format", "json", stdout=out)
    return json.loads(out.getvalue())


def test_list_and_release_a_task(tasks, seen, held):
    """redlock_list and redlock_release --task select the locks of one task and show the task's id and state."""
    first = tasks.long.apply_async((seen.name,), queue="nobody")
    tasks.executed.apply_async((seen.name,), queue="nobody")
    [row] = [row for row in command("redlock_list", "--task", tasks.long.name) if seen.name in row["name"]]
    assert (row["name"], row["kind"], row["label"]) == (f"long:{seen.name}", "task", tasks.long.name)
    assert (row["extra"]["task_id"], row["extra"]["state"]) == (first.id, "queued")
    with locks["default"].lock(f"plain:{seen.name}"):
        results = command("redlock_release", "--task", tasks.long.name, "--yes")
        assert held(f"plain:{seen.name}") is not None
    assert [row["result"] for row in results if row["name"] == f"long:{seen.name}"] == ["released"]
    assert held(f"executed:{seen.name}") is not None
    assert not tasks.long.apply_async((seen.name,), queue="nobody").duplicate


def test_release_of_a_task_by_name(tasks, seen, held):
    """redlock_release with a NAME and --task releases only locks that match both."""
    tasks.long.apply_async((seen.name,), queue="nobody")
    name = f"long:{seen.name}"
    assert command("redlock_release", name, "--task", "another", "--yes") == []
    assert command("redlock_release", f"*{seen.name}", "--task", "another", "--yes") == []
    assert [row["name"] for row in command("redlock_release", name, "--task", tasks.long.name, "--yes")] == [name]
