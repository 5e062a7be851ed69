"""Exporters of metrics and traces. The setting ``REDLOCK_METRICS`` or a call of `install` switches them on.

The `EventQueue` passes the events of locks to the exporters in the background. Without Django, first set
``hook = event_queue.record_event`` on each backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

EXPORTERS = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}  # the library that each needs


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
