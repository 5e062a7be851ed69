"""What the transports of one kind of server have in common."""

import pytest


class SameBytes:
    """Requests and replies are the same bytes as over TCP, where `TestRedis` has the cases of names and patterns."""

    test_held_lists_special_characters = test_held_pattern = test_held_pattern_that_does_not_match = None


class OwnAuthority:
    """The server's certificate is the only one that is trusted. redis-py makes a TLS context for each connection, and
    would load all certificates of the system into each.
    """

    @pytest.fixture(autouse=True)
    def no_other_authorities(self, monkeypatch, tmp_path):
        monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
