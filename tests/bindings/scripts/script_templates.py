"""Draws scripts from templates: an entry of the table NAMES replaces a slot `{NAMES}`.

An entry of several lines gets the indentation of its slot's line. A slot `{NAMES?}` is empty in two
of three draws; then its line is omitted.
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
    """Draws a script from the tables of `module`.

    SETUP, PHASES, CHANGES and END are texts or tables of templates. ``APART`` lists combinations of
    texts that the reference cannot run; no script has all texts of one entry.
    """
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
