"""The conformance suite on ZooKeeper."""

import pytest

from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.testing.conformance import BackendConformance
from tests.support.service import revive
from tests.support.zookeeper import SHARED, end_sessions


@pytest.fixture(scope="module")
def hosts(running):
    server = running(SHARED)
    revive(server)
    return server.hosts


class TestZooKeeper(BackendConformance):
    short = 0.2
    lacks = ("rlock", "rwlock", "semaphore", "striped", "multilock", "hand_off", "every")

    @pytest.fixture
    def new_backend(self, hosts, monkeypatch):
        # A wait of a moment may have to open the session first, which takes long on a busy machine.
        monkeypatch.setattr("django_redlock.backends.zookeeper.backend.FINAL_REQUEST_SECONDS", 10)
        made = []

        def new(**options):
            # Half of the session timeout bounds a lease: long enough for those that the suite asks for.
            options = {"session_timeout": 60, "node_timeout": 10, "connect_timeout": 10, **options}
            made.append(ZooKeeperBackend(hosts, **options))
            return made[-1]

        yield new
        end_sessions(made)
