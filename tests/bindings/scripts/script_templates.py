"""Draws scripts from templates: a slot `{NAMES}` becomes one of the entries of the table NAMES, which may have slots.

An entry of several lines gets the indentation of its slot's line. A slot `{NAMES?}` is empty in two draws of three,
without a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

SLOT = re.compile(r"\{([A-Z_]+)(\??)\}")


def filled(draw: st.DrawFn, template: str, tables: Mapping[str, Any]) -> str:
    lines = []
    for line in template.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        while slot := SLOT.search(line):
            drawn = "" if slot[2] and draw(st.integers(0, 2)) < 2 else draw(st.sampled_from(tables[slot[1]]))
            line = line[: slot.start()] + drawn.replace("\n", "\n" + indent) + line[slot.end() :]
        if line.strip():
            lines.append(line)
    return "\n".join(lines)


@st.composite
def scripts(draw: st.DrawFn, module: ModuleType) -> str:
    """`module`: has the tables, and of them SETUP, PHASES, CHANGES and END: texts or tables of templates. No script has
    all texts of an entry of its APART, which the reference cannot run."""
    tables = vars(module)

    def one(templates: Sequence[str]) -> str:
        return filled(draw, draw(st.sampled_from(templates)), tables)

    parts = [one(tables["SETUP"])]
    for number in range(draw(st.integers(1, 2))):
        if number:
            parts.append(one(tables["CHANGES"]))
        parts.append(one(tables["PHASES"]))
    script = "\n".join(filter(None, [*parts, *tables["END"]])) + "\n"
    assume(not any(all(text in script for text in texts) for texts in tables.get("APART", ())))
    return script
