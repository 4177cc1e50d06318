"""Links of README and docs lead to files and headings here; every example has a card."""

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


def test_every_example_has_a_card() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    parts = {"common.py", "bubble.py", "solutions.py"}  # which no reader runs alone
    found = [path for kind in ("py", "ipynb") for path in (ROOT / "examples").rglob(f"*.{kind}")]
    names = [str(path.relative_to(ROOT)) for path in found if "deploy" not in path.parts and path.name not in parts]
    assert not [name for name in names if name not in page.split()]
