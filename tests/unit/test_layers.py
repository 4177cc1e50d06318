"""Imports point down and have no cycles, in C++ and in Python.

Also checks names limited to one layer, comments and lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE, PACKAGE = ROOT / "csrc", ROOT / "ringcomm"

# From the bottom to the top: each layer may use itself and the layers before it.
CORE_LAYERS = [
    "base",
    "kernels",
    "codecs",
    "schedule",
    "transport",
    "shm",
    "p2p",
    "executor",
    "host_collectives",
    "hierarchical",
    "collectives",
    "device",
    "engine",
    "param_server",
    "graph_ops",
]
PYTHON_LAYERS = [  # under ringcomm/_src; "public" is the rest of the package
    "core",
    "base",
    "config",
    "platform",
    "elastic",
    "elastic.agent",
    "arrays",
    "calls",
    "algorithms",
    "observe",
    "process",
    "compression",
    "communicator",
    "named",
    "training",
    "decentralized",
    "elastic.member",
    "shims",
    "launch",
    "elastic.driver",
    "shims.ringcomm_torch_backend",
    "torch",
    "jax",
    "keras",
    "tensorflow",
    "public",
    "shims.horovod",
    "cli",
    "teaching",
]
ABOVE_PUBLIC = {"ringcomm.__main__": "cli", "ringcomm.teaching": "teaching"}  # public modules that use higher layers

FORBIDDEN = {  # under csrc: a pattern, and the only folder that may contain it
    r"#\s*include\s*[<\"]Python\.h": "",
    r"#\s*include\s*[<\"]mpi\.h": "",
    r"\bgetenv\b": "",
    r"\bMPI_[A-Z][a-z]\w*\s*\(": "transport",
}


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


@cache
def core_files() -> dict[str, str]:
    """Returns a map from the path below csrc to the text."""
    return {str(path.relative_to(CORE)): path.read_text() for path in sorted(CORE.rglob("*.[ch]pp"))}


@cache
def core_includes() -> dict[str, set[str]]:
    return {
        name: {one for one in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE) if one in core_files()}
        for name, text in core_files().items()
    }


@cache
def python_modules() -> dict[str, Path]:
    def name(path: Path) -> str:
        return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    return {name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def python_imports() -> dict[str, set[str]]:
    """Returns imports at run time, at the top of modules and inside of functions."""
    return {name: set(imported(ast.parse(path.read_text()).body)) - {name} for name, path in python_modules().items()}


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    modules = python_modules()
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from imported(node.orelse)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the package"
            for one in node.names:
                if (name := f"{node.module}.{one.name}") in modules:
                    yield name
                elif node.module in modules and name != "ringcomm._src.core._core":
                    yield node.module
        else:
            yield from imported(ast.iter_child_nodes(node))


def core_layer(name: str) -> int:
    return CORE_LAYERS.index(name.split("/")[0])


def python_layer(name: str) -> int:
    inside = name.startswith("ringcomm._src.")
    part = (name.removeprefix("ringcomm._src.") if inside else ABOVE_PUBLIC.get(name, "public")) + "."
    return max(level for level, layer in enumerate(PYTHON_LAYERS) if part.startswith(f"{layer}."))


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Repeatedly removes names without users or without uses. Returns the rest."""
    left = {name: set(others) - {name} for name, others in arrows.items()}
    while True:
        used = set().union(*left.values()) if left else set()
        kept = {name: others & left.keys() for name, others in left.items() if name in used and others & left.keys()}
        if kept == left:
            return [[name, *sorted(others)] for name, others in left.items()]
        left = kept


LANGUAGES = {"C++": (core_includes, core_layer), "Python": (python_imports, python_layer)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_imports_point_down(language: str) -> None:
    imports, layer = LANGUAGES[language]
    upward = {(who, whom) for who, others in imports().items() for whom in others if layer(whom) > layer(who)}
    assert not upward


@pytest.mark.parametrize("language", LANGUAGES)
def test_imports_hold_no_circle(language: str) -> None:
    assert circles(LANGUAGES[language][0]()) == []


def test_circles_are_found() -> None:
    """Checks an example: arrows that lead in and out of a cycle are not part of it."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    found = circles({"in": {"a"}, "a": {"b"}, "b": {"a", "out"}, "out": set()})
    assert sorted(one[0] for one in found) == ["a", "b"]


def test_what_the_core_must_not_use() -> None:
    wrong = [
        f"{name}: {pattern}"
        for name, text in core_files().items()
        for pattern, folder in FORBIDDEN.items()
        if name.split("/")[0] != folder and re.search(pattern, without_comments(text))
    ]
    assert not wrong


def namespace_types(text: str, file: str) -> Iterator[str]:
    """Returns full names of types in namespaces; an unnamed one has the file's name."""
    scopes: list[str | None] = []  # per open brace: the namespace's name, or None
    code = re.sub(r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\])\'', "", without_comments(text))
    for head, brace in re.findall(r"([^;{}]*)([;{}])", code):
        if brace == "}":
            scopes.pop()
        elif brace == "{":
            head = re.sub(r"^\s*#[^\n]*", "", head, flags=re.MULTILINE).strip()
            space = re.search(r"(?:^|\s)namespace(?:\s+([\w:]+))?$", head)
            kind = re.search(
                r"\b(?:struct|class|union|enum(?: class)?)\s+(?:alignas\(\w+\)\s*)?(\w+)(?:\s+final)?\s*(?::(?!:)|$)",
                head,
            )
            if kind and None not in scopes:
                yield "::".join([*filter(None, scopes), kind[1]])
            scopes.append((space[1] or file) if space else None)


def test_types_have_one_definition() -> None:
    """Two types of one full name violate the ODR: the linker keeps one destructor."""
    found: dict[str, set[str]] = {}
    for path in [*CORE.rglob("*.[ch]pp"), *PACKAGE.rglob("*.hpp")]:
        for name in namespace_types(path.read_text(), str(path)):
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert len(found) > 100
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_namespace_types() -> None:
    text = """namespace a { namespace { struct Own {}; } enum class Kind : int { x };
      template <class T> struct Of final : B<T> { struct Inner {}; }; template <> struct Of<int> { };
      void f() { struct Local { }; put("}}"); } namespace b::c { class D; union E { }; } }"""
    assert list(namespace_types(text, "f")) == ["a::f::Own", "a::Kind", "a::Of", "a::b::c::E"]


def written() -> Iterator[Path]:
    for folder in ("csrc", "ringcomm", "tests", "examples", "benchmarks", "docs"):
        for suffix in ("cpp", "hpp", "py"):
            yield from (ROOT / folder).rglob(f"*.{suffix}")


def test_lines_and_rulers() -> None:
    """Lines have at most 120 columns, and no ruler (// ---- words ----) is split by re-wrapping."""
    wrong = []
    for path in written():
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            too_long = len(line) > 120 and path.suffix != ".py"  # ruff checks Python
            if too_long or re.fullmatch(r"\s*(//|#)\s*-{5,}\s*", line):
                wrong.append(f"{name}:{number}: {line}")
    assert not wrong, "\n".join(wrong)
