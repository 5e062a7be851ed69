"""The layout of the package and of its tests: unique names, no import cycles, small folders, no private imports."""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import django_redlock

ROOT = Path(django_redlock.__file__).parent
TESTS = Path(__file__).parents[1]
MODULES_IN_FOLDER = 14
MODULES_IN_CHAIN = 19  # modules that import each other one after another; this number only shrinks
# Django looks for these by name, one in each app or command.
REQUIRED_NAMES = {"Command", "Meta", "Media", "_Members"}
# Private to other packages (threading, kazoo, Celery), and also the name of something of ours.
FOREIGN_ATTRIBUTES = {"_is_owned", "_at_fork_reinit", "_connection", "_connections", "_call", "_close", "_loop"}


def module_name(path):
    parts = ("django_redlock", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def trees():
    """Return the path and the syntax tree of each module, by its name. Workers that only collect tests don't parse."""
    return {module_name(path): (path, ast.parse(path.read_text())) for path in sorted(ROOT.rglob("*.py"))}


def package_of(module):
    """Return the folder of a module, as a dotted name."""
    return module if trees()[module][0].name == "__init__.py" else module.rpartition(".")[0]


def imported(module):
    """Yield each name that a module imports from this package: (module, name or None), type-checking imports
    included.
    """
    for node in ast.walk(trees()[module][1]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name in trees())
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package_of(module).split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                if f"{base}.{alias.name}" in trees():
                    yield f"{base}.{alias.name}", None
                elif base in trees():
                    yield base, alias.name


def top_level_imports(module):
    """Yield such imports outside of functions, whose imports run later."""
    inner = {
        id(node)
        for function in ast.walk(trees()[module][1])
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    tree = ast.Module(
        [node for node in ast.walk(trees()[module][1]) if isinstance(node, ast.Import | ast.ImportFrom)], []
    )
    tree.body = [node for node in tree.body if id(node) not in inner]
    path = trees()[module][0]
    saved, trees()[module] = trees()[module], (path, tree)
    try:
        return {target for target, _ in imported(module)} - {module}
    finally:
        trees()[module] = saved


def cycles(graph):
    """Return the strongly connected components with more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = []
            while (last := stack.pop()) != node:
                component.append(last)
            if component:
                found.append(sorted([*component, node]))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def longest_chain(graph):
    """Return the longest list of modules in which each module imports the next. ``graph`` has no cycle."""

    @functools.cache
    def chain(module):
        return (module, *max(map(chain, sorted(graph[module])), key=len, default=()))

    return list(max(map(chain, sorted(graph)), key=len))


def test_class_names_are_unique():
    """No class name is used twice."""
    places = defaultdict(list)
    for module, (_, tree) in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in REQUIRED_NAMES:
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def constants():
    """Yield each public constant of a module with its value as source."""
    for _, tree in trees().values():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                value = ast.unparse(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name) and name.id.isupper() and not name.id.startswith("_"):
                            yield name.id, value


def test_constant_names_are_unique():
    """No constant's name has two values."""
    values = defaultdict(set)
    for name, value in constants():
        if not value.startswith(("TypeVar(", "ParamSpec(")):
            values[name].add(value)
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


def test_no_import_cycles():
    """The modules have no import cycle."""
    assert cycles({module: top_level_imports(module) for module in trees()}) == []


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
    ],
)
def test_cycles_are_found(graph, expected):
    """cycles() finds the cycles of a graph."""
    assert cycles(graph) == expected


def test_short_chains_of_imports():
    """No chain of imports is so long that the way from top to bottom can't be remembered."""
    chain = longest_chain({module: top_level_imports(module) for module in trees()})
    assert len(chain) <= MODULES_IN_CHAIN, " -> ".join(chain)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": set()}, ["a"]),
        ({"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()}, ["a", "b", "c"]),
    ],
)
def test_chains_are_found(graph, expected):
    """longest_chain() finds the longest chain of a graph."""
    assert longest_chain(graph) == expected


def test_small_folders():
    """No folder has more modules than fit on a screen."""
    counts = defaultdict(int)
    for path, _ in trees().values():
        counts[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    assert {folder: count for folder, count in counts.items() if count > MODULES_IN_FOLDER} == {}


def test_small_folders_of_tests():
    """No folder of tests has more modules with tests than fit on a screen."""
    counts = Counter(str(path.parent.relative_to(TESTS)) for path in TESTS.rglob("test_*.py"))
    assert {folder: count for folder, count in counts.items() if count > MODULES_IN_FOLDER} == {}


def test_conformance_cases_have_unique_names():
    """No two cases of the conformance suite share a name, because the suite would run only one of them."""
    classes = defaultdict(list)
    for module, (_, tree) in trees().items():
        for node in ast.walk(tree):
            if module.startswith("django_redlock.testing.conformance.") and isinstance(node, ast.ClassDef):
                for case in node.body:
                    if isinstance(case, ast.FunctionDef) and case.name.startswith("test_"):
                        classes[case.name].append(node.name)
    assert len(classes) > 150
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}


def test_private_names_are_not_imported():
    """Names with an underscore are not imported from other folders."""
    crossing = [
        f"{module} imports {target}.{name}"
        for module in trees()
        for target, name in imported(module)
        if name and name.startswith("_") and not name.startswith("__") and package_of(module) != package_of(target)
    ]
    assert crossing == []


def test_private_attributes_are_not_used_elsewhere():
    """Attributes with an underscore are used only in the folder that defines them."""
    homes = defaultdict(set)
    for module, (_, tree) in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                homes[node.name].add(package_of(module))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                homes[node.attr].add(package_of(module))
    used = [
        f"{module}:{node.lineno} {node.attr}"
        for module, (_, tree) in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and node.attr not in FOREIGN_ATTRIBUTES
        and homes[node.attr]
        and package_of(module) not in homes[node.attr]
    ]
    assert used == []
