"""Rules that keep the project simple and its output honest; each could be broken by accident."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_support import REPOSITORY, Project

CODEGEN = REPOSITORY / "codegen/shaderloom"
RUNTIME = REPOSITORY / "runtime/shaderloom_runtime"
MODULES = sorted(CODEGEN.glob("*.py"))
RUNTIME_MODULES = sorted(RUNTIME.glob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield the full name of every module that the nodes import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level + (node.module or "")
            elif node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


HAND_WRITTEN = re.compile(r"\bbinding\s*=|constant_id\s*=|local_size_\w*|\bpush_constant\b")


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "templates").rglob("*.j2")), ids=lambda path: path.name
)
def test_templates_declare_nothing_by_hand(path: Path) -> None:
    """A number in a template is a number that the plan does not know."""
    assert HAND_WRITTEN.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "layout(set = 0, binding = 1) uniform sampler2D t;",
        "layout(set = 0, binding=1) uniform sampler2D t;",
        "layout(constant_id = 3) const int a = 0;",
        "layout(local_size_x = 8) in;",
        "layout(push_constant) uniform P { int a; };",
    ],
)
def test_a_declaration_by_hand_is_recognised(line: str) -> None:
    assert HAND_WRITTEN.search(line)


@pytest.mark.parametrize("path", RUNTIME_MODULES, ids=lambda path: path.name)
def test_the_runtime_imports_little(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "vulkan", "shaderloom_runtime", ""}
    roots = {name.split(".")[0] for name in imported(ast.walk(tree(path)))}
    # Unpack, which Python 3.10 lacks: under TYPE_CHECKING only, so never imported.
    at_run_time = {name.split(".")[0] for name in imported(iter(tree(path).body))}
    assert roots <= {*allowed, "typing_extensions"}
    assert at_run_time <= allowed


def test_the_dispatcher_imports_the_standard_library_alone(built: Project) -> None:
    names = imported(ast.walk(tree(built.out / "dispatch.py")))
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


def module_level(path: Path) -> set[str]:
    """Return the modules of the package that are imported when ``path`` is."""
    package = path.parent.name
    names = set()
    for name in imported(iter(tree(path).body)):  # not in functions, not under TYPE_CHECKING
        parts = name.split(".")
        if parts[0] == package and len(parts) > 1:
            names.add(parts[1])
        elif name.startswith(".") and parts[-1]:
            names.add(parts[-1])
    return {name for name in names if (path.parent / f"{name}.py").is_file()}


@pytest.mark.parametrize("folder", [CODEGEN, RUNTIME], ids=lambda path: path.name)
def test_no_import_cycle(folder: Path) -> None:
    graph = {path.stem: module_level(path) for path in folder.glob("*.py")}
    assert graph
    while ready := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in ready}
    assert graph == {}


@pytest.mark.parametrize("path", MODULES + RUNTIME_MODULES, ids=lambda path: path.name)
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES + RUNTIME_MODULES, ids=lambda path: path.name)
def test_public_names_have_docstrings(path: Path) -> None:
    """Modules, classes and functions; a method may say enough by its name."""
    module = tree(path)
    assert ast.get_docstring(module), path.name
    public = [
        node
        for node in module.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


PRINTERS = {"print", "input", "exit", "quit", "breakpoint"}


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.name not in ("cli.py", "__main__.py")],
    ids=lambda path: path.name,
)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] * (node.func.id in PRINTERS)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            found += [name] * (name in {"sys.exit", "os._exit", "sys.stdout", "sys.stderr"})
        if isinstance(node, ast.Name) and node.id == "SystemExit":
            found.append(node.id)
    assert found == []


@pytest.mark.parametrize("path", MODULES + RUNTIME_MODULES, ids=lambda path: path.name)
def test_importing_a_module_does_nothing(path: Path) -> None:
    """No call stands alone at the top of a module."""
    calls = [
        node.lineno
        for node in tree(path).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    assert calls == []


def text_files(project: Project) -> dict[str, str]:
    return {
        path: data.decode()
        for path, data in project.files().items()
        if not path.endswith((".spv", ".stamp.json"))
    }


def test_generated_files_say_so_at_the_start(built: Project) -> None:
    """On the first line; JSON has no comments, so there it is the first key."""
    for path, text in text_files(built).items():
        first, second, *_ = text.splitlines()
        line = second if path.endswith(".json") else first
        assert "Generated by shaderloom from variants.yaml" in line, path
        assert "Do not edit." in line, path


def test_generated_files_hold_no_path_and_no_date(built: Project) -> None:
    """Neither of this machine nor of this moment."""
    here = [str(built.folder), str(REPOSITORY), sys.prefix, str(Path.home()), "/tmp/", "/usr/"]
    for path, data in built.files().items():
        assert [word for word in here if len(word) > 1 and word.encode() in data] == [], path
        dates = re.findall(rb"\b20\d\d-[01]\d-[0-3]\d\b|\b[0-2]\d:[0-5]\d:[0-5]\d\b", data)
        assert dates == [], path


def test_generated_paths_are_short(built: Project) -> None:
    """Windows allows 260 characters; a root of 140 leaves this much."""
    for path in built.files():
        assert len(f"generated/{path}") < 120
