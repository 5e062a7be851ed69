"""Settings of a worker whose records are on a primary with replicas."""

from testproject.settings import *  # noqa: F403
from testproject.settings import REDLOCK

REDLOCK["default"] = {**REDLOCK["replica"], "OPTIONS": {"node_timeout": 5}}
