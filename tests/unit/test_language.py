"""Comments, docstrings, messages and docs obey the rules of language that words alone can show.

A comment opens with its subject or its verb, not with `Of` or `What`. Ranks, callers and buffers
are named: `who` and `nobody` are for persons. WORDS are not used: each has a term of the field in
its place. Spelling is British, except for "optimizer". Prose is at most 100 columns wide.
CONTRIBUTING.md has the rules. No exceptions.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc", "ringcomm", "tests", "benchmarks", "examples", "docs")
WIDTH = 100
HEADING = re.compile(r"#+ .*\bWhat\b")
OPENING = re.compile(r"(Of|What|That|Who|Whoever|Whose|Whether|And|But)\b", re.IGNORECASE)
PERSON = re.compile(r"\b(who|whoever|somebody|nobody|everybody)\b", re.IGNORECASE)
WORDS = re.compile(
    r"\b(tells?|told|telling|says?|said|hears?|heard|owes?|owed|keepers?|comes?|came|lies|travel(?:s|led|ling)?|"
    r"settle[sd]?|settling|bur(?:y|ies|ied)|strand(?:s|ed)?|g[ia]ves? up|given up|lets? go|step(?:s|ped)? aside|"
    r"stands? in|standing|absent|alike|likeness|born|doomed|crowded|guests?|own algorithms?|at once|whole|"
    r"of (?:its|their) own|such(?! as)|so many|as many|apart|word of)\b",
    re.IGNORECASE,
)
AMERICAN = re.compile(  # not in Horovod's messages ("not been initialized", "Skipping ..."), nor RMSprop's "centered="
    r"(?<!not been )(?<!Skipping )\b(behaviors?|neighbors?|gray|canceled|centered(?!=)|"
    r"[a-z]*(?:central|final|general|initial|normal|parallel|quant|recogn|serial|synchron|vector)iz(?:e[sd]|ing|ation))\b"
)
TITLE = re.compile(r'"[^"]*"')
QUOTED = re.compile(r"``?[^`]*``?|:\w+:|(?<!\w)'[\w.]+'")
COMMENT_ALONE = re.compile(r"\s*(# |//|\* )(?!  )")  # with two spaces it is a drawing
RULERS = re.compile(r"[- ]*$")
C_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/', re.DOTALL)
CYTHON_COMMENT = re.compile(r'"""(?P<block>(?:[^\\]|\\.)*?)"""|"(?:[^"\\\n]|\\.)*"|#(?P<line>[^\n]*)', re.DOTALL)
C_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"""(?:[^\\]|\\.)*?"""|#[^\n"]*|"(?P<text>(?:[^"\\\n]|\\.)*)"', re.DOTALL)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Text = tuple[int, str]  # number of the line, content


def comments_of_python(text: str) -> Iterator[Text]:
    for node in ast.walk(parsed(text)):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring
    lines = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines.append((token.start[0], token.line.strip().startswith("#"), token.string.lstrip("#")))
    yield from joined(lines)


def comments_of_tokens(text: str, pattern: re.Pattern[str]) -> Iterator[Text]:
    lines = []
    for match in pattern.finditer(text):
        comment = match["line"] if match["line"] is not None else match["block"]
        if comment is not None:
            alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            lines.append((text.count("\n", 0, match.start()) + 1, alone, comment))
    yield from joined(lines)


def joined(lines: list[tuple[int, bool, str]]) -> Iterator[Text]:
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


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def messages_of_python(text: str) -> Iterator[Text]:
    """Yields the strings that are sentences, without docstrings."""
    tree = parsed(text)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, DOCUMENTED) if is_text(node)}
    for node in ast.walk(tree):
        text_node = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if text_node and node.value.count(" ") > 1:
            yield node.lineno, node.value


def is_text(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


def messages_of_tokens(text: str) -> Iterator[Text]:
    for match in C_TEXT.finditer(text):
        if match["text"] and match["text"].count(" ") > 1:
            yield text.count("\n", 0, match.start()) + 1, match["text"]


def prose_of_page(text: str) -> Iterator[Text]:
    """Yields the lines of a Markdown page outside of code blocks, tables and comments."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith(("|", "<", "![", "[")):
            yield number, line


@cache
def files(*suffixes: str) -> list[tuple[str, str]]:
    """Returns the path and content of every file with these suffixes."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    skipped = {"__pycache__", "api", "_build"}
    found = sorted(path for path in paths if path.suffix in suffixes and not skipped & set(path.parts))
    return [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in found]


@cache
def comments() -> list[str]:
    found = []
    for path, text in files(".py", ".pxi", ".pyx", ".cpp", ".hpp", ".c", ".h", ".inl", ".cu"):
        if path.endswith(".py"):
            own = comments_of_python(text)
        else:
            own = comments_of_tokens(text, CYTHON_COMMENT if path.endswith(("pxi", "pyx")) else C_COMMENT)
        found += [(path, number, one) for number, one in own if not RULERS.match(one)]
    return [f"{path}:{number}: {' '.join(one.split())}" for path, number, one in found]


def messages() -> Iterator[str]:
    for path, text in files(".py", ".pxi", ".pyx", ".cpp", ".hpp", ".c", ".h"):
        if path.startswith(("csrc", "ringcomm")):
            own = messages_of_python(text) if path.endswith(".py") else messages_of_tokens(text)
            yield from (f"{path}:{number}: {' '.join(one.split())}" for number, one in own)


def prose() -> Iterator[str]:
    for path, text in files(".md"):
        yield from (f"{path}:{number}: {line}" for number, line in prose_of_page(text))


def wrong(texts: Iterator[str] | list[str], rule: re.Pattern[str]) -> str:
    """Returns the texts that contain what the rule forbids, a line each."""
    hits = []
    for one in texts:
        place, _, text = one.partition(": ")
        if match := rule.search(QUOTED.sub("", text)):
            hits.append(f"{place}: {match[0]}: {text[:100]}")
    return "\n".join(hits)


def test_comments_open_with_a_subject_or_a_verb() -> None:
    found = [one[:110] for one in comments() if OPENING.match(one.partition(": ")[2])]
    assert not found, "\n".join(found)


def test_headings_name_the_thing() -> None:
    found = [one for one in prose() if HEADING.match(one.partition(": ")[2])]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("texts", [comments, messages])
def test_ranks_are_no_persons(texts: object) -> None:
    assert not (found := wrong(texts(), PERSON)), found  # type: ignore[operator]


@pytest.mark.parametrize("texts", [comments, messages, prose])
def test_words_of_the_field(texts: object) -> None:
    assert not (found := wrong(texts(), WORDS)), found  # type: ignore[operator]


@pytest.mark.parametrize("texts", [comments, messages, prose])
def test_spelling_is_british(texts: object) -> None:
    own = [TITLE.sub("", text) for text in texts()]  # type: ignore[operator]
    assert not (found := wrong(own, AMERICAN)), found


def prose_lines(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of prose in comments, docstrings and pages, without rulers and code."""
    if path.endswith(".md"):
        yield from (line for line in prose_of_page(text) if "](" not in line[1])
        return
    for number, line in enumerate(text.splitlines(), 1):
        alone = COMMENT_ALONE.match(line)
        if alone and (alone[1] == "# ") == path.endswith((".py", ".pxi", ".pyx")) and not line.endswith(("---", "===")):
            yield number, line
    if path.endswith(".py"):
        for node in ast.walk(parsed(text)):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
                own = node.body[0]
                for number, line in enumerate(text.splitlines()[own.lineno - 1 : own.end_lineno], own.lineno):
                    if not line.startswith((" " * (own.col_offset + 4), " " * own.col_offset + ">>>")):  # code
                        yield number, line.removesuffix('"""')


def test_prose_is_narrow() -> None:
    every = files(".py", ".pxi", ".pyx", ".cpp", ".hpp", ".c", ".h", ".inl", ".md")
    lines = ((path, *one) for path, text in every for one in prose_lines(path, text))
    found = [f"{path}:{number}: {line}" for path, number, line in lines if len(line) > WIDTH]
    assert not found, "\n".join(found)
