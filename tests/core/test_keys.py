"""Key names and glob patterns."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_redlock.core.keys import check_prefix, glob_escape, glob_matcher, keys_for, lock_name_of

ODD = "ab*?[]^-!\\{}é\n"
however_long = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


@however_long
@given(st.text(alphabet=ODD, max_size=8), st.text(alphabet=ODD, max_size=8))
def test_escaped_pattern(name, other):
    assert glob_matcher(glob_escape(name))(other) is (name == other)


def test_patterns_match_as_in_redis(redis_server):
    names = ["".join(each) for n in (1, 2) for each in itertools.product("ab]^-", repeat=n)]
    patterns = ["*", "?", "a*", "*a", "[ab]", "[^ab]", "[a-b]b", "[b-a]b", "[!a]"]
    patterns += [r"\*", r"[\]]", "[a", "[^a", "a\\", "??", "[-]"]
    with redis_server.client(decode_responses=True) as redis:
        redis.mset(dict.fromkeys(names, 1))
        for pattern in patterns:
            found = set(redis.scan_iter(match=pattern, count=1000)) & set(names)  # others may write here, too
            assert found == set(filter(glob_matcher(pattern), names)), pattern


@however_long
@given(st.text(alphabet=ODD + "\0:/漢😀", min_size=1).filter(lambda name: name[0] != "}"))
def test_name_of_a_key(name):
    """A lock's name can be read from its key; its companion keys give none."""
    encoded = name.encode()
    lock, *companions = keys_for(b"redlock", encoded)
    assert lock_name_of(b"redlock", lock) == name
    assert all(lock_name_of(b"redlock", key) is None for key in companions)
    assert lock_name_of(b"another", lock) is None


@pytest.mark.parametrize("prefix", ["", "a{b", "a}", None, 17])
def test_invalid_prefix(prefix):
    """A key prefix with braces, which would spoil the hash tag, is refused."""
    with pytest.raises(ValueError, match="key_prefix"):
        check_prefix(prefix)
