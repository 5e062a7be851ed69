"""A worker for test_multilock.py: acquires some of the locks, in any order, repeatedly."""

import random

from redis import Redis, RedisCluster

from django_redlock.backends.redis import RedisBackend
from tests.support.processes import Channel


def take_some(channel: Channel, url: str, names: list[str], rounds: int) -> dict[str, int]:
    """Acquire two to four of the locks, so many times. Returns how often it was alone with them, and how often not."""
    cluster = url.startswith("redis+cluster://")
    where = url.removeprefix("redis+cluster://").partition(",")[0]
    client = RedisCluster.from_url(f"redis://{where}") if cluster else Redis.from_url(url)
    backend = RedisBackend(url, node_timeout=10)
    channel.say("ready")
    channel.hear("go", 120)
    told = {"alone": 0, "not alone": 0}
    for _ in range(rounds):
        mine = random.sample(names, random.randint(2, 4))
        with backend.multilock(mine, blocking_timeout=60):
            there = [client.incr(f"there:{name}") for name in mine]
            for name in mine:
                client.decr(f"there:{name}")
        told["alone" if set(there) == {1} else "not alone"] += 1
    client.close()
    return told
