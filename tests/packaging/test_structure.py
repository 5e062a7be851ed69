"""The layout of the package and of its tests: unique names, no import cycles, small folders, no private imports."""

import ast
import functools
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import django_redlock

ROOT = Path(django_redlock.__file__).parent
TESTS = Path(__file__).parents[1]
MODULES_IN_FOLDER = 14
MODULES_IN_CHAIN = 15  # modules that import each other one after another; this number only shrinks
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


def imported(module, nodes=None):
    """Yield each (module, name or None) of this package that a module, or these nodes of its tree, imports."""
    for node in ast.walk(trees()[module][1]) if nodes is None else nodes:
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


@functools.cache
def graph():
    """Return the modules that each module imports outside of functions, whose imports run later."""
    found = {}
    for module, (_, tree) in trees().items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inner = {id(node) for function in functions for node in ast.walk(function)}
        outer = (node for node in ast.walk(tree) if id(node) not in inner)
        found[module] = {target for target, _ in imported(module, outer)} - {module}
    return found


def test_class_names_are_unique():
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
    values = defaultdict(set)
    for name, value in constants():
        if not value.startswith(("TypeVar(", "ParamSpec(")):
            values[name].add(value)
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


def test_imports_are_short_and_without_cycles():
    """The modules have no import cycle, and no chain of imports is too long to remember."""
    chains = {}
    for module in TopologicalSorter(graph()).static_order():  # raises CycleError
        chains[module] = [module, *max((chains[each] for each in sorted(graph()[module])), key=len, default=[])]
    longest = max(chains.values(), key=len)
    assert len(longest) <= MODULES_IN_CHAIN, " -> ".join(longest)


def test_small_folders():
    """No folder of the package has more modules than fit on a screen, and none of the tests."""
    modules = [path for path, _ in trees().values() if path.name != "__init__.py"]
    counts = Counter(path.parent for path in [*modules, *TESTS.rglob("test_*.py")])
    assert {str(folder): count for folder, count in counts.items() if count > MODULES_IN_FOLDER} == {}


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
