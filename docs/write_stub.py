"""Writes ringcomm/_src/core/_core.pyi from the extension's sources, for type checkers.

Types of C become Python's. Types of objects and results are annotations in the sources. `--check`
writes nothing, and exits with status 1 if the file is out of date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).resolve().parent.parent / "ringcomm" / "_src" / "core"
STUB = CORE / "_core.pyi"
HEAD = '''"""The interface of the native core. It has no policy. Blocking calls release the GIL.

dtype, op and collective are indices into DTYPES, OPS and COLLECTIVES. Memory is passed as
addresses: the caller keeps it alive. Errors are the exceptions of ringcomm.errors.
docs/write_stub.py writes this file.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.config.config import Config
from ringcomm._src.training.plans import BucketShape
'''
TYPES = {
    **dict.fromkeys(("int", "size_t", "unsigned", "Py_ssize_t", "uintptr_t"), "int"),
    **{f"{sign}int{bits}_t": "int" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("double", "float"), "float"),
    **dict.fromkeys(("bint", "cbool"), "bool"),
    **{"object": "Any", "list": "list[Any]", "tuple": "tuple[Any, ...]", "dict": "dict[Any, Any]"},
}
LEFT_OUT = {"__dealloc__", "__del__", "__repr__", "__eq__"}
BASES = {"InPlaceHandle": "Handle[Any]"}  # ringcomm._src.arrays.handles registers it as a subclass


def split(text: str) -> list[str]:
    """Splits the text at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def python_type(c_type: str) -> str:
    if element := re.fullmatch(r"vector\[(.*)\]", c_type):
        return f"Sequence[{python_type(element[1])}]"
    return TYPES.get(c_type.removeprefix("unsigned ").strip(), c_type)


def parameter(text: str) -> str:
    """Returns Python's declaration of an argument with a type of C, an annotation, or neither."""
    declared, equals, default = (part.strip() for part in text.partition("="))
    given = f" = {default}" if equals else ""
    if ":" in declared or declared in ("self", "*", "/"):
        return declared + given
    *c_type, name = declared.removesuffix(" not None").split()
    if not c_type:
        return f"{name}: Any{given}"
    kind = python_type(" ".join(c_type))
    optional = default == "None" or (kind == " ".join(c_type) and kind[0].isupper() and "not None" not in declared)
    return f"{name}: {kind}{' | None' if optional else ''}{given}"


def header_end(lines: list[str], at: int) -> int:
    """Returns the index of the first line after a def's header, which may span several lines."""
    depth = 0
    while True:
        depth += sum((letter in "([") - (letter in ")]") for letter in lines[at].partition("  #")[0])
        at += 1
        if depth == 0:
            return at


def docstring(lines: list[str], at: int) -> list[str]:
    """Returns the lines of the docstring that begins at line `at`; empty if none does."""
    if at == len(lines) or not lines[at].strip().startswith('"""'):
        return []
    end = at if lines[at].count('"""') == 2 else next(i for i in range(at + 1, len(lines)) if '"""' in lines[i])
    return lines[at : end + 1]


def function(lines: list[str], at: int, is_property: bool, is_static: bool) -> Iterator[str]:
    end = header_end(lines, at)
    header = " ".join(line.strip() for line in lines[at:end])
    code, _, comment = header.partition("  #")
    found = re.match(r"(?:def|cpdef) +(?:([\w\[\]]+) +)?(\w+)\((.*)\)(?: -> (.*?))?(?: except.*?)?:(.*)$", code)
    if found is None:
        raise ValueError(f"cannot parse the header of a function: {header}")
    c_result, name, arguments, result, body = found.groups()
    if name in LEFT_OUT:
        return
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    if name in ("__cinit__", "__init__"):
        name, result = "__init__", "None"
    result = result or (python_type(c_result) if c_result else "None" if code.startswith("cpdef") else "Any")
    note = f"  #{comment}" if comment else ""
    if is_property:
        yield f"{indent}{name}: {result}{note}"
        return
    if is_static:
        yield f"{indent}@staticmethod"
    doc = [] if body.strip() else docstring(lines, end)
    yield f"{indent}def {name}({', '.join(map(parameter, split(arguments)))}) -> {result}:{'' if doc else ' ...'}{note}"
    yield from doc


def stub_of(lines: list[str]) -> Iterator[str]:
    decorators: set[str] = set()
    for at, line in enumerate(lines):
        if found := re.match(r"\s*@(\w+(?:\.setter)?)", line):
            decorators.add(found[1])
        elif found := re.match(r"cdef class (\w+)(?:\((\w+)\))?:", line):
            base = BASES.get(found[1], found[2])
            decorators.clear()
            yield f"class {found[1]}{f'({base})' if base else ''}:"
            yield from docstring(lines, at + 1) or ["    ..."]
        elif line.startswith("class "):
            end = next((i for i in range(at + 1, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
            yield from lines[at:end]
        elif found := re.match(r"    cdef (?:public|readonly) ([\w ]+?) (\w+(?:, \w+)*)( +#.*)?$", line):
            kind = python_type(found[1])
            optional = " | None" if (kind[0].isupper() and kind != "Any") or "[" in kind else ""
            yield from (f"    {name}: {kind}{optional}{found[3] or ''}" for name in found[2].split(", "))
        elif re.match(r"(    )?(def|cpdef) ", line):
            if not any(name.endswith(".setter") for name in decorators):
                yield from function(lines, at, "property" in decorators, "staticmethod" in decorators)
            decorators.clear()
        elif re.match(r"\s*cdef ", line):
            decorators.clear()
        elif found := re.match(r"([A-Z_]+): (.+?) = .*?(  #.*)?$", line):
            yield f"{found[1]}: {found[2]}{found[3] or ''}"


def text() -> str:
    included = re.findall(r'^include "(.*)"', (CORE / "_core.pyx").read_text(), re.MULTILINE)
    lines = [line for name in included for line in stub_of((CORE / name).read_text().splitlines())]
    command = ["ruff", "format", "--stdin-filename", str(STUB), "-"]
    ruff = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
    return subprocess.run(ruff, input=HEAD + "\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout


def main() -> int:
    written = text()
    if "--check" in sys.argv:
        if STUB.read_text() != written:
            print("ringcomm/_src/core/_core.pyi is out of date: run docs/write_stub.py", file=sys.stderr)
            return 1
        return 0
    STUB.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
