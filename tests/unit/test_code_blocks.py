"""Every shell and Python block of README and docs runs, is part of a tested file, or is marked.

The words after a block's language decide:

    ```python                           runs on two ranks, after the page's blocks before it
    ```sh                               commands of `ringcomm`, which run here
    ```python examples/tutorial/x.py    is part of this file, which a test runs
    ```sh tests/.../test_x.py           is run by this test
    ```sh fragment                      cannot run alone: Python must parse; the options and files
                                        of commands must exist
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from argparse import ArgumentParser
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mpi_case
import pytest
from launching import ROOT

from ringcomm._src import cli
from ringcomm._src.launch import options as ringrun

FENCE = re.compile(r"^```(python|sh|bash)\b *(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMANDS = ("ringcomm", "ringrun")
FOLDERS = ("benchmarks/", "examples/", "tests/")
PRINTED = {  # texts that a page's programs print on two ranks, and how often
    "README": {"rank 0 of 2: 2048 samples": 1, "rank 1 of 2": 0},
    "communicator": {
        "rank 0 with tag 42 (40 bytes) was never received": 1,
        "of 2: 1, from rank": 2,  # the sum of 0 and 1
        "the ring has sent 16000 bytes": 2,
    },
    "torch-distributed": {"[2.0, 2.0, 2.0]": 2},
    "migrating-from-horovod": {"epoch 2: loss": 1},
    "writing-an-algorithm": {"[2. 2. 2.": 2},
    "teaching": {"butterfly: correct": 2},
    "from-ddp": {"rank 0 of 2: loss 0.0000": 1, "rank 1 of 2: loss 0.0000": 1},
    "from-mpi4py": {"rank 0: [0. 2. 4. 6.]": 1, "rank 1: [0. 2. 4. 6.]": 1},
}


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    mark: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, one.start()) + 1, one[1], one["mark"], one["code"])
        for one in FENCE.finditer(text)
    ]


BLOCKS = [block for page in pages() for block in blocks(page)]
PROGRAMS = {
    page: "\n".join(block.code for block in blocks(page) if block.language == "python" and not block.mark)
    for page in pages()
}


@cache
def is_tested(file: str) -> bool:
    return any(Path(file).stem in path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def stripped(text: str) -> str:
    return "\n".join(map(str.strip, text.strip().splitlines()))


@pytest.mark.parametrize("page", [page for page, code in PROGRAMS.items() if code], ids=lambda page: page.stem)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(PROGRAMS[page])
    printed = mpi_case.output_of([tmp_path / "page.py"], tmp_path, ranks=2)
    for text, count in PRINTED[page.stem].items():
        assert printed.count(text) == count, printed


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language != "python" and not block.mark], ids=str)
def test_shell_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands are those of `ringcomm`, which run in this process because that is faster."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command, *words in commands(block):
        assert command == "ringcomm" and cli.main(words) == 0


def test_marked_blocks_are_parts_of_tested_files() -> None:
    for block in BLOCKS:
        if block.mark in ("", "fragment"):
            continue
        text = (ROOT / block.mark).read_text(encoding="utf-8")
        if block.mark.startswith("tests/"):
            assert block.page.name in text, block
        else:
            assert stripped(block.code) in stripped(text), block
            assert is_tested(block.mark), block


def test_pages_open_with_a_sentence() -> None:
    """The first paragraph of a page is what the reader gets, not a block or a table."""
    for page in pages():
        title, _, first = page.read_text(encoding="utf-8").split("\n", 2)
        opens = title.startswith("# ") and re.match(r"(?!```)[A-Za-z`]", first)
        assert opens or title.startswith("```{include}"), page


def test_fragments_of_python_parse() -> None:
    for block in BLOCKS:
        if block.language == "python" and block.mark == "fragment":
            ast.parse(block.code, filename=str(block))


def commands(block: Block) -> list[list[str]]:
    """Returns the words of each command of a shell block."""
    lines = block.code.replace("\\\n", " ").splitlines()
    split = [shlex.shlex(line, posix=True, punctuation_chars="|&;<>") for line in lines]
    found: list[list[str]] = []
    for words in split:
        words.whitespace_split = True
        found.append([])
        for word in words:
            found[-1].append(word)
            if set(word) <= set("|&;"):
                found[-1].pop()
                found.append([])
    return [words for words in found if words]


def parsers() -> dict[str, ArgumentParser]:
    return {"ringcomm": cli.make_parser(), "ringrun": ringrun.make_parser()}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language != "python" and block.mark], ids=str)
def test_commands_have_their_options_and_files(block: Block) -> None:
    for words in commands(block):
        for number, word in enumerate(words):
            if word in COMMANDS and set(words[number + 1 : number + 2]) != {"run"}:
                with contextlib.redirect_stderr(io.StringIO()) as errors:
                    try:
                        parsers()[word].parse_args([part for part in words[number + 1 :] if part not in "<>"])
                    except SystemExit:
                        pytest.fail(f"{block}: {' '.join(words)}: {errors.getvalue()}")
            if word.startswith(FOLDERS) and not word.startswith("benchmarks/results/"):
                assert (ROOT / word).exists(), f"{block}: {word}"
