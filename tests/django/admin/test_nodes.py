"""The admin on a store of three real nodes, some of which disagree or are down."""

import re

import pytest

from django_redlock import locks
from django_redlock.errors import LockUnavailable
from tests.django.admin.test_list import LIST
from tests.support.locks import entry_of
from tests.support.service import poll

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def nodes(settings, own_redis):
    """Three servers, with `default` on them."""
    servers = [own_redis() for _ in range(3)]
    settings.ROOT_URLCONF = "tests.django.urls"
    options = {"quarantine": False, "node_timeout": 5}
    settings.REDLOCK = {"default": entry_of("redlock.RedlockBackend", [server.url for server in servers], **options)}
    locks["default"].describe("stock")  # connects to all nodes: a grant would not wait for the last connection
    yield servers
    locks.reset()


def nodes_in(page):
    """Return the cells of the column with the numbers of nodes, without words for screen readers."""
    cells = re.findall(r'<td class="field-nodes">(.*?)</td>', page.text)
    return [re.sub("<[^>]*>", "", re.sub('<span class="redlock-word">.*?</span>', "", cell)) for cell in cells]


def test_nodes_that_disagree(client, nodes, operator):
    """The list marks a lock that some nodes don't know, and its page shows the holder or the error of each node."""
    with locks["default"].lock("stock", ttl=60, auto_renew=False, owner={"host": "web1"}):
        poll(lambda: nodes_in(client.get(LIST)) == ["3/3"], timeout=20, what="all nodes to know the lock")
        assert "redlock-bad" not in client.get(LIST).text
        with nodes[0].client() as redis:
            redis.set("redlock:{stock}", f'{TOKEN} {{"host":"stranger"}}', px=20_000)
        listed = client.get(LIST)
        nodes[1].kill()
        page = client.get(f"{LIST}default_3Astock/change/").text
    assert nodes_in(listed) == ["2/3"]
    assert '<b class="redlock-bad">2/3</b>' in listed.text
    assert "What each node says" in page
    assert "stranger" in page
    assert TOKEN not in page
    assert "Connection refused" in page
    assert f"127.0.0.1:{nodes[2].port}" in page


def test_one_node_down(client, nodes, operator):
    """With one node of three down the list works, and the health page names the node."""
    nodes[1].kill()
    with locks["default"].lock("stock"):
        assert nodes_in(client.get(LIST)) == ["2/3"]
    health = client.get(f"{LIST}health/").text
    assert health.count("redlock-bad") == 1
    assert re.search(rf"✗</span>.*Problem:</span> 127.0.0.1:{nodes[1].port}", health)


def test_majority_down(client, nodes, operator, caplog):
    """Without a majority, list, page and forced release name the error of each node, and log no traceback."""
    for server in nodes[:2]:
        server.kill()
    with pytest.raises(LockUnavailable) as caught:
        locks["default"].force_release("stock")
    for text in (str(caught.value), client.get(LIST).text, client.get(f"{LIST}default_3Astock/change/").text):
        assert "no majority of the 3 nodes is available" in text
        assert all(f"127.0.0.1:{server.port}: " in text for server in nodes[:2])
    assert not [record for record in caplog.records if record.exc_info]
