"""Comments and docstrings of the product obey the rules of language that words alone can show.

A comment opens with its subject or its verb, not with "Of" or "What". Ranks, callers and buffers are named: "who" and
"nobody" are for persons. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENING = re.compile(r"(Of|What|That|Who|Whoever|Whose|Whether|And|But)\b", re.IGNORECASE)
PERSON = re.compile(r"\b(who|whoever|somebody|nobody|everybody)\b", re.IGNORECASE)
QUOTED = re.compile(r"``?[^`]*``?")
RULERS = re.compile(r"[- ]*$")
C_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/', re.DOTALL)
CYTHON_COMMENT = re.compile(r'"""(?P<block>(?:[^\\]|\\.)*?)"""|"(?:[^"\\\n]|\\.)*"|#(?P<line>[^\n]*)', re.DOTALL)

Comment = tuple[int, str]


def of_python(text: str) -> Iterator[Comment]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring
    lines = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines.append((token.start[0], token.line.strip().startswith("#"), token.string.lstrip("#")))
    yield from joined(lines)


def of_tokens(text: str, pattern: re.Pattern[str]) -> Iterator[Comment]:
    lines = []
    for match in pattern.finditer(text):
        comment = match["line"] if match["line"] is not None else match["block"]
        if comment is not None:
            alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            lines.append((text.count("\n", 0, match.start()) + 1, alone, comment))
    yield from joined(lines)


def joined(lines: list[tuple[int, bool, str]]) -> Iterator[Comment]:
    """Joins comment lines that follow each other into one comment."""
    first, comment, last = 0, "", -1
    for number, alone, text in lines:
        if alone and number == last + 1:
            comment += " " + text.strip()
        else:
            if comment:
                yield first, comment
            first, comment = number, text.strip()
        last = number if alone else -1
    if comment:
        yield first, comment


def comments() -> Iterator[str]:
    for path in sorted(path for top in ("csrc", "ringcomm") for path in (ROOT / top).rglob("*")):
        if path.suffix == ".py":
            found = of_python(path.read_text())
        elif path.suffix in (".pxi", ".pyx"):
            found = of_tokens(path.read_text(), CYTHON_COMMENT)
        elif path.suffix in (".cpp", ".hpp", ".c", ".h", ".inl", ".cu"):
            found = of_tokens(path.read_text(), C_COMMENT)
        else:
            continue
        for number, text in found:
            if not RULERS.match(text):
                yield f"{path.relative_to(ROOT)}:{number}: {' '.join(text.split())}"


def test_comments_open_with_a_subject_or_a_verb() -> None:
    wrong = [one[:110] for one in comments() if OPENING.match(one.partition(": ")[2])]
    assert not wrong, "\n".join(wrong)


def test_ranks_are_no_persons() -> None:
    wrong = [one[:110] for one in comments() if PERSON.search(QUOTED.sub("", one.partition(": ")[2]))]
    assert not wrong, "\n".join(wrong)
