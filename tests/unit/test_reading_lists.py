"""Checks the reading lists in docs/architecture.md: their files exist, and the lists are short."""

from __future__ import annotations

import re

import pytest
from launching import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("title", "most_files", "most_lines"),
    [("One all-reduce, file by file", 15, 1800), ("One gradient, from backward() to step()", 20, 2500)],
)
def test_reading_lists(title: str, most_files: int, most_lines: int) -> None:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    entries = re.findall(r"^(\d+)\. `([^`]+)` — .*\.$", section, re.MULTILINE)
    assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
    assert 10 < len(entries) <= most_files
    assert sum(len((ROOT / file).read_text().splitlines()) for _, file in entries) <= most_lines
