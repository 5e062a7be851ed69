"""The last run of a dead leader, if the broker or the result store can't say whether its message was sent."""

from __future__ import annotations

import pytest
from celery import Celery

from django_redlock.celery.beat.in_doubt import was_sent

NO_BROKER = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("transport", "results", "logged"),
    [
        ("memory://", None, "messages of the transport 'memory' can't be read"),
        (NO_BROKER, None, "the broker is unavailable"),
        ("memory://", "file:///no/such/folder", "the result store or the broker is unavailable for task an-id"),
    ],
)
def test_an_unknown_run_counts_as_not_sent(caplog, transport, results, logged):
    """The run counts as not sent, so that the leader sends it again under the same id, and the reason is logged."""
    app = Celery("in-doubt", broker=transport, backend=results, set_as_current=False)
    app.conf.broker_transport_options = {"interval_start": 0, "max_retries": 1}  # no seconds between attempts
    assert was_sent(app, "an-id") is False
    assert [logged in record.getMessage() for record in caplog.records if record.name == "django_redlock"] == [True]
