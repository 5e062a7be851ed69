"""A real server that is killed (`kill -9`) at points all over a request: never two charges, never a lost one."""

import pytest
from django.db import connections

from tests.idempotency.conftest import create_tables, new_database
from tests.idempotency.killed_server import KilledServer, judge, play

REQUESTS = 12


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_each_order_is_charged_once(kind, request, start, redis_url, unique, tmp_path, django_db_blocker):
    """Each order is charged once and its client gets the answer; with Redis the outcome may be unknown."""
    with django_db_blocker.unblock():
        alias = start(new_database("sqlite" if kind == "redis" else kind, request, unique, tmp_path))
        create_tables(alias)
        options = {} if kind == "redis" else {"database": "default"}
        server = start(KilledServer(tmp_path, redis_url, dict(connections.settings[alias]), options))
        replies = dict(play(server, REQUESTS))
        judge(alias, replies, in_doubt_allowed=kind == "redis")
    assert sum(reply.deaths for reply in replies.values()) == 2 * REQUESTS
