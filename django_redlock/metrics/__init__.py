"""Exporters of metrics and traces. The setting ``REDLOCK_METRICS`` or a call of `install` switches them on.

The `EventQueue` passes the events of locks to the exporters in the background. Without Django, first set
``hook = event_queue.record_event`` on each backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import NamedTuple

from ..history.event_queue import EventRecord

EXPORTERS = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}  # the library that each needs


class Metric(NamedTuple):
    """A metric of lock events.

    ``kinds``: the kinds of events that it counts. ``labels``: names of labels, each with the `EventRecord` field of its
    value. ``seconds``: the field that a histogram records; ``""`` for a counter.
    """

    prometheus: str
    opentelemetry: str
    unit: str
    help: str
    kinds: tuple[str, ...]
    labels: dict[str, str]
    seconds: str = ""


_LOCK = {"backend": "alias", "kind": "primitive"}
_REFUSED, _FORCED = {**_LOCK, "reason": "reason"}, {"backend": "alias"}
_FAULT, _DUPLICATE = {"node": "name", "error": "reason"}, {"task": "name", "found_at": "reason"}
METRICS = (
    Metric("acquisitions", "acquisitions", "{lock}", "Locks acquired", ("acquired",), _LOCK),
    Metric("refusals", "refusals", "{lock}", "Locks not acquired", ("refused",), _REFUSED),
    Metric("losses", "losses", "{lock}", "Locks lost while held", ("lost",), _LOCK),
    Metric("forced_releases", "forced_releases", "{lock}", "Locks released by force", ("forced",), _FORCED),
    Metric("wait", "wait.duration", "s", "Time until a lock was acquired", ("acquired",), _LOCK, "waited"),
    Metric("hold", "hold.duration", "s", "Time for which a lock was held", ("released", "lost"), _LOCK, "held"),
    Metric("node_errors", "node.errors", "{error}", "Failed requests to nodes", ("fault",), _FAULT),
    Metric("task_duplicates", "task.duplicates", "{call}", "Duplicate calls of tasks", ("duplicate",), _DUPLICATE),
)


def measured(records: Iterable[EventRecord]) -> Iterator[tuple[Metric, dict[str, str], float]]:
    """Yield each metric that ``records`` change, its labels, and the amount to add: seconds, or 1 for a counter."""
    for record in records:
        for metric in METRICS:
            if record.kind in metric.kinds:
                labels = {label: getattr(record, field) for label, field in metric.labels.items()}
                yield metric, labels, getattr(record, metric.seconds) if metric.seconds else 1


def install(names: Iterable[str]) -> None:
    """Switch on the exporters ``names``: a list with ``"prometheus"``, ``"opentelemetry"`` or both.

    A single name may also be given as a string. After a second call with the same name, each event is still counted
    once. Raises ``ValueError`` for an unknown name, ``ImportError`` when the exporter's library is not installed.
    """
    for name in [names] if isinstance(names, str) else names:
        if name not in EXPORTERS:
            raise ValueError(f"there is no exporter {name!r} (known: {', '.join(EXPORTERS)})")
        try:
            module = import_module(f"{__name__}.{name}")
        except ImportError as error:
            raise ImportError(f'{name} needs {EXPORTERS[name]}: pip install "django-redlock[{name}]"') from error
        module.install()
