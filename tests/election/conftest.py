import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from tests.election.candidates import Candidate


@pytest.fixture
def backend(redis_url):
    backend = RedisBackend(redis_url, node_timeout=5)  # the machine may be busy
    yield backend
    backend.close()


@pytest.fixture(params=["threads", "asyncio"])
def asynchronous(request):
    return request.param == "asyncio"


@pytest.fixture
def candidate(asynchronous, backend):  # backend: it is closed after the candidates have ended
    """`candidate(backend, name, **options)`: a candidate that stands until the end of the test."""
    made = []

    @functools.wraps(Candidate)
    def make(backend, name, **options):
        made.append(Candidate(backend, name, asynchronous=asynchronous, **options))
        return made[-1].start()

    yield make
    for each in made:
        each.end()
