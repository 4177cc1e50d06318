"""Links of README and docs to files and headings of this repository lead somewhere."""

from __future__ import annotations

import re

from launching import ROOT

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Returns the anchors that GitHub and MyST make of headings."""
    titles = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    wrong = []
    for page in (page for page in pages if "_build" not in page.parts):
        for path, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            file = page.parent / path if path else page
            if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
                wrong.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
    assert not wrong, wrong
