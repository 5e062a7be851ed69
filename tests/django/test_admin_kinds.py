"""Each kind of lock in the admin's list."""

import pytest
from django.contrib.admin.utils import quote

from django_redlock.testing.conformance.shared_handles import MAKE
from tests.django.test_admin_list import LIST, names_in

NAMES = {"striped": ["{x}#0", "{x}#1", "{x}#2"], "multilock": ["x", "x:2"]}


@pytest.mark.parametrize("kind", sorted(MAKE))
def test_kinds(client, stores, operator, using, kind):
    """It is listed as what it is, can be filtered by that, and is released by force like any other."""
    shown = "mutex" if kind == "fair" else kind
    lock = MAKE[kind](stores[using], "x")
    lock.acquire()
    names = names_in(client.get(LIST, {"kind": shown}))
    assert names
    assert set(names) <= set(NAMES.get(kind, ["x"]))
    assert names_in(client.get(LIST, {"kind": "another"})) == []
    detail = client.get(f"{LIST}{quote(f'{using}:{names[0]}')}/change/")
    assert shown in detail.content.decode()
    for name in names:
        assert stores[using].force_release(name)
    assert not lock.owned()
