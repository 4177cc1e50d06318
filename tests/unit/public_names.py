"""The public interface as text: every name of every public module, with arguments and defaults.

`python tests/unit/public_names.py` rewrites public_names.txt for the modules whose framework is
installed here.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ringcomm

ROOT = Path(__file__).resolve().parent.parent.parent / "ringcomm"
LIST = Path(__file__).with_name("public_names.txt")


def module_names() -> list[str]:
    """Returns the names of all public modules."""
    paths = (path.relative_to(ROOT).with_suffix("") for path in ROOT.rglob("*.py"))
    names = {".".join(("ringcomm", *path.parts)).removesuffix(".__init__") for path in paths if path.parts[0] != "_src"}
    return sorted(names - {"ringcomm.__main__", "ringcomm.as_horovod"})  # commands: importing the second has an effect


def imported(name: str) -> ModuleType | None:
    """Returns the module; None if its framework is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if "needs" in str(error) or "pip install" in str(error):
            return None
        raise


def text_of_default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, type):
        return value.__qualname__
    if value is ringcomm.global_process_set:
        return "global_process_set"
    simple = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if simple or value in ((), [], {}) else "..."


def text_of(function: Any) -> str:
    """Returns the signature of the function, or "" if it has none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    words, keyword_only = [], False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            keyword_only = True
        elif one.kind is one.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            words.append("*")
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={text_of_default(one.default)}"
        words.append(f"{star}{one.name}{default}")
    if positional_only := sum(one.kind is one.POSITIONAL_ONLY for one in parameters):
        words.insert(positional_only, "/")
    return f"({', '.join(words)})"


def names_of_ours(kind: type) -> set[str]:
    """Returns the names that the class defines, or those of its bases that belong to ringcomm."""
    return {name for base in kind.__mro__ if base.__module__.partition(".")[0] == "ringcomm" for name in vars(base)}


def text_of_class(kind: type) -> str:
    """Returns the constructor's signature; "" if another library (Python's) defines it."""
    inherited = issubclass(kind, enum.Enum) or not {"__init__", "__new__"} & names_of_ours(kind)
    return "" if inherited else text_of(kind)


def members(kind: type) -> Iterator[str]:
    """Yields the public methods and attributes of a class, with those of ringcomm's base classes."""
    for name in sorted(name for name in names_of_ours(kind) if not name.startswith("_")):
        value = inspect.getattr_static(kind, name)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        yield f"    {name}{text_of(value) if callable(value) else ''}"


def lines_of(module: ModuleType, seen: set[int]) -> Iterator[str]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield f"  module {name}"
        elif isinstance(value, type):
            yield f"  class {name}{text_of_class(value)}"
            if id(value) not in seen:
                seen.add(id(value))
                yield from members(value)
        else:
            yield f"  {name}{text_of(value) if callable(value) else ''}"


def found() -> dict[str, list[str]]:
    """Returns the names of each public module that can be imported here."""
    # by framework, because its modules can be imported either all or not at all
    seen: dict[str, set[int]] = defaultdict(set)
    modules = {name: imported(name) for name in module_names()}
    return {
        name: list(lines_of(module, seen[name.split(".")[1] if "." in name else ""]))
        for name, module in modules.items()
        if module is not None
    }


def listed() -> dict[str, list[str]]:
    """Returns the names of each module in the committed list."""
    sections: dict[str, list[str]] = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line.startswith("ringcomm"):
            lines = sections[line] = []
        elif line:
            lines.append(line)
    return sections


def main() -> None:
    sections = listed() | found()
    text = ("\n".join([name, *sections[name]]) for name in sorted(sections) if name in module_names())
    LIST.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
