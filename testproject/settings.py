"""Settings of the project for the demo and the tests. The environment provides the addresses of servers."""

import os
from pathlib import Path
from typing import Any

REDIS_URL = os.environ.get("TESTPROJECT_REDIS", "redis://127.0.0.1:6379/0")

SECRET_KEY = "not a secret: this project runs on loopback only"
DEBUG = bool(os.environ.get("TESTPROJECT_DEBUG"))
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_redlock",
    "django_redlock.idempotency",
    "testproject.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Seconds. Longer than the default, because the demo may overload a small machine.
NODE_TIMEOUT = float(os.environ.get("TESTPROJECT_NODE_TIMEOUT", "1"))
# One alias for each backend. Aliases that need their own servers exist only if the environment names the servers.
REDLOCK: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django_redlock.backends.redis.RedisBackend",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"node_timeout": NODE_TIMEOUT},
    },
    "cache": {
        "BACKEND": "django_redlock.backends.redis.RedisBackend",
        "LOCATION": "cache:default",
        "KEY_PREFIX": "cachelock",  # the same server as "default", with separate locks
    },
    "timestamp": {
        "BACKEND": "django_redlock.backends.timestamp.TimestampBackend",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "timestamp",
        "OPTIONS": {"node_timeout": NODE_TIMEOUT},
    },
    "locmem": {"BACKEND": "django_redlock.backends.locmem.LocMemBackend", "LOCATION": "testproject"},
    "dummy": {"BACKEND": "django_redlock.backends.dummy.DummyBackend"},
}
if nodes := os.environ.get("TESTPROJECT_NODES"):  # URLs of independent servers, with spaces between
    quorum = {"BACKEND": "django_redlock.backends.redlock.RedlockBackend", "LOCATION": nodes.split()}
    REDLOCK["redlock"] = quorum
    if os.environ.get("TESTPROJECT_QUORUM"):  # for the shop's locks; records of queued tasks need one Redis
        REDLOCK["tasks"] = {**REDLOCK["default"], "KEY_PREFIX": "tasks"}
        REDLOCK["default"] = {**quorum, "KEY_PREFIX": "shop", "OPTIONS": {"node_timeout": NODE_TIMEOUT}}
if primary := os.environ.get("TESTPROJECT_PRIMARY"):  # URL of a server with replicas
    REDLOCK["replica"] = {"BACKEND": "django_redlock.backends.replica.ReplicaBackend", "LOCATION": primary}
if hosts := os.environ.get("TESTPROJECT_ZOOKEEPER"):  # host:port,host:port
    REDLOCK["zookeeper"] = {"BACKEND": "django_redlock.backends.zookeeper.ZooKeeperBackend", "LOCATION": hosts}
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": NODE_TIMEOUT, "SOCKET_TIMEOUT": NODE_TIMEOUT},
    }
}

SILENCED_SYSTEM_CHECKS = ["redlock.W011"]  # nothing clears the cache, whose database the locks share

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("TESTPROJECT_DATABASE", Path(__file__).with_name("shop.sqlite3")),
        "CONN_MAX_AGE": None,
        # For many writing processes. With WAL readers don't block the writer. With IMMEDIATE a transaction waits for
        # the write lock at its start instead of failing at its first write.
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        },
    }
}

CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
