"""The examples of the documentation run as they are, on the stores that they name."""

import ast
import doctest
import importlib
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_redlock import locks
from django_redlock.backend_registry import build
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.backends.zookeeper import ZooKeeperBackend
from tests.docs.pages import DOCS, PAGES, ROOT, Example, examples
from tests.support.replicas import Replicated
from tests.support.zookeeper import ZooKeeper

REDIS = "redis://127.0.0.1:6379/0"
NODES = re.compile(r"redis://127\.0\.0\.1:638\d/0")  # each a Redis of its own
ENSEMBLE = "127.0.0.1:2181"  # a ZooKeeper
REPLICATED = "redis://127.0.0.1:6390/0"  # with one replica
ON_ZOOKEEPER = [page for page in PAGES if ENSEMBLE in page.read_text()]
ON_REDIS = [page for page in PAGES if page not in ON_ZOOKEEPER]
README = examples((ROOT / "README.md").read_text())


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Give the stores of the pages more time than their defaults: the machine may be busy."""
    monkeypatch.setitem(ReplicaBackend.__init__.__kwdefaults__, "lag", 30)
    for option in ("connect_timeout", "node_timeout"):
        monkeypatch.setitem(ZooKeeperBackend.__init__.__kwdefaults__, option, 30)
    monkeypatch.setattr("django_redlock.backends.redis.default_node_timeout", lambda _ttl: 5)


def run(page: Path, places: Mapping[str, str], globs: dict[str, Any]) -> None:
    """Run the examples of `page` one after another in `globs`. Settings in the page apply from their place on.

    `places`: the URLs in the page, and those of real servers that replace them.
    """
    text = page.read_text()
    for named, real in places.items():
        text = text.replace(named, real)
    with ExitStack() as ends:
        own = {"BACKEND": "django_redlock.backends.locmem.LocMemBackend", "LOCATION": str(page)}
        ends.enter_context(override_settings(REDLOCK={"default": own}))
        ends.callback(free_everything)
        for example in examples(text):
            where = f"{page.relative_to(ROOT)}:{example.line}"
            if example.language == "pycon":
                converse(example, where, globs)
            elif example.language == "python" and "fragment" in example.options.get("class", ""):
                check_fragment(example, where)
            elif example.language == "python":
                names = globs if "settings.py" not in example.options.get("caption", "") else {}
                exec(compile(example.code, where, "exec"), names)  # noqa: S102  (the documentation's own code)
                if names is not globs and "REDLOCK" in names:
                    for alias, entry in names["REDLOCK"].items():
                        build(alias, entry).close()
                    ends.enter_context(override_settings(REDLOCK=names["REDLOCK"]))


def free_everything() -> None:
    for held in locks["default"].held():
        locks["default"].force_release(held.name)


def converse(example: Example, where: str, globs: dict[str, Any]) -> None:
    """Run a dialogue. The output must be that of the page."""
    test = doctest.DocTestParser().get_doctest(example.code, globs, where, where, 0)
    test.globs = globs  # not a copy: the next dialogue goes on from here
    said: list[str] = []
    if doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False).failed:
        pytest.fail("".join(said), pytrace=False)


def check_fragment(example: Example, where: str) -> None:
    """Check an example that can't run alone: its syntax, and its imports from this package."""
    tree = compile(example.code, where, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_redlock"):
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{where}: {node.module} has no {name.name}"


@pytest.fixture
def servers_for(request) -> Callable[[str], dict[str, str]]:
    """`servers_for(text)`: real servers for the URLs that a page names."""

    def places(text: str) -> dict[str, str]:
        found = {url: request.getfixturevalue("own_redis")().url for url in sorted(set(NODES.findall(text)))}
        if REDIS in text:
            found[REDIS] = request.getfixturevalue("redis_url")
        if REPLICATED in text:
            found[REPLICATED] = request.getfixturevalue("start")(Replicated()).primary.url
        return found

    return places


@pytest.mark.parametrize("page", ON_REDIS, ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_of_the_page(page, servers_for):
    run(page, servers_for(page.read_text()), {"__name__": "__docs__"})


@pytest.mark.parametrize("page", ON_ZOOKEEPER, ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_on_zookeeper(page, start):
    hosts = start(ZooKeeper()).hosts  # a server without znodes of other tests
    run(page, {ENSEMBLE: hosts}, {"__name__": "__docs__"})


@pytest.mark.parametrize(
    ("taken", "answer"), [(False, "done"), (True, r"lock 'order:17': is held by [\w.-]+:\d+ MainThread")]
)
def test_example_of_the_readme(taken, answer, redis_url):
    """The README's example settles an order, or names the holder."""
    settings, code = (each.code for each in README if each.language == "python")
    charged: list[int] = []
    globs: dict[str, Any] = {"add_up_the_order": lambda _order: 40, "charge_the_card": charged.append}
    names: dict[str, Any] = {}
    exec(settings.replace(REDIS, redis_url), names)  # noqa: S102  (the README's own code)
    exec(code.replace("blocking_timeout=5", "blocking_timeout=0.05"), globs)  # noqa: S102
    with override_settings(REDLOCK=names["REDLOCK"]), ExitStack() as ends:
        if taken:
            ends.enter_context(locks["default"].lock("order:17"))
        assert re.fullmatch(answer, globs["settle"](17))
    assert charged == [40] * (not taken)


def test_fragments_of_the_readme():
    """The README's shorter examples are valid Python with existing imports."""
    fragments = [each for each in README if each.language == "py"]
    assert len(fragments) == 3
    for fragment in fragments:
        check_fragment(fragment, f"README.md:{fragment.line}")
