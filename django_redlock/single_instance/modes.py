"""The modes of ``single_instance_task``: when one call of a task refuses another."""

from __future__ import annotations

from typing import Literal, NamedTuple

ModeName = Literal["until_executed", "until_executing", "while_executing", "until_and_while_executing", "until_expired"]


class Mode(NamedTuple):
    """A mode of ``single_instance_task``: the states in which one call refuses another.

    ``at_submit``: the states of another call ("queued", "running") in which a call is refused at submit; ``""``: never.
    ``at_start``: the same for the start of the body. ``until_expiry``: the call counts as queued until its ttl has
    passed, even after its body has ended. A running body has a lease in every mode, so that a redelivered message does
    not run at the same time.
    """

    at_submit: str
    at_start: str
    until_expiry: bool = False


MODES: dict[str, Mode] = {
    "until_executed": Mode("queued running", "queued running"),
    "until_executing": Mode("queued", "queued"),
    "while_executing": Mode("", "running"),
    "until_and_while_executing": Mode("queued", "running"),
    "until_expired": Mode("queued", "queued", until_expiry=True),
}
DEFAULT_BODY_TTL = 30.0  # seconds
