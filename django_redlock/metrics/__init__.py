"""Numbers and traces for other systems. Switched on by the setting ``REDLOCK_METRICS``, or by calling `install`.

The `EventQueue` passes the events of locks to them in the background. Without Django, set
``backend.hook = event_queue.record_event`` once.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

EXPORTERS = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}  # and what they need


def install(names: Iterable[str]) -> None:
    """Switch on ``"prometheus"`` or ``"opentelemetry"``, or both. Doing it twice does no harm.

    Raises ``ValueError`` for another name, ``ImportError`` for one whose library is not installed.
    """
    for name in [names] if isinstance(names, str) else names:
        if name not in EXPORTERS:
            raise ValueError(f"there is no exporter {name!r} (known: {', '.join(EXPORTERS)})")
        try:
            module = import_module(f"{__name__}.{name}")
        except ImportError as error:
            raise ImportError(f'{name} needs {EXPORTERS[name]}: pip install "django-redlock[{name}]"') from error
        module.install()
