"""The checks of `RedlockBackend` on its LOCATION, before any connection."""

import pytest

from django_redlock.backends.redlock import RedlockBackend


def test_an_even_number_of_nodes_warns():
    """Four nodes tolerate no more failures than three: said where the backend is made."""
    with pytest.warns(UserWarning, match=r"4 nodes tolerate no more failures than 3; use an odd number"):
        RedlockBackend([f"redis://127.0.0.1:{port}" for port in range(4)])


@pytest.mark.parametrize("location", ["redis://127.0.0.1:6379", [], ()])
def test_location_is_a_list(location):
    """One URL, or none, is refused with what it should be."""
    with pytest.raises(ValueError, match="must be a list of URLs"):
        RedlockBackend(location)


def test_a_cluster_is_no_node():
    """A Redis Cluster fails over by itself, and so is no independent node."""
    with pytest.raises(ValueError, match="can't be a node of a quorum"):
        RedlockBackend(["redis+cluster://127.0.0.1:7000"], quarantine=False)


def test_without_poll(monkeypatch):
    """Where there is no poll, as after eventlet's monkey patches, it says so when it is made."""
    monkeypatch.delattr("select.poll")
    with pytest.raises(RuntimeError, match=r"needs select\.poll"):
        RedlockBackend(["redis://127.0.0.1:1/0"])
