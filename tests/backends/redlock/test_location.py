"""The checks of `RedlockBackend` on its LOCATION, before any connection."""

import pytest

from django_redlock.backends.redlock import RedlockBackend


def test_an_even_number_of_nodes_warns():
    """RedlockBackend with an even number of nodes warns, because four nodes tolerate no more failures than three."""
    with pytest.warns(UserWarning, match="4 nodes tolerate the failure of 1, .*; use an odd number"):
        RedlockBackend([f"redis://127.0.0.1:{port}" for port in range(4)])


@pytest.mark.parametrize("location", ["redis://127.0.0.1:6379", [], ()])
def test_location_is_a_list(location):
    """A LOCATION that is one URL or empty is refused with an explanation."""
    with pytest.raises(ValueError, match="must be a list of URLs"):
        RedlockBackend(location)


@pytest.mark.parametrize("node", [["redis://127.0.0.1:6379"], {"URL": "redis://127.0.0.1:6379"}], ids=["list", "dict"])
def test_a_node_that_is_no_url(node):
    """A node that is not a text is refused with an explanation."""
    with pytest.raises(ValueError, match="expected a redis"):
        RedlockBackend([node] * 3)


def test_a_cluster_is_no_node():
    """A Redis Cluster is refused as a node, because it fails over by itself and is not independent."""
    with pytest.raises(ValueError, match="can't be a node of a quorum"):
        RedlockBackend(["redis+cluster://127.0.0.1:7000"], quarantine=False)


def test_without_poll(monkeypatch):
    """Without `select.poll`, for example under eventlet, RedlockBackend raises RuntimeError."""
    monkeypatch.delattr("select.poll")
    with pytest.raises(RuntimeError, match=r"needs select\.poll"):
        RedlockBackend(["redis://127.0.0.1:1/0"])
