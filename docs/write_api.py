"""Writes docs/api/: the API reference as HTML, from the docstrings. Needs the extra `docs` (pdoc)."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import jinja2
import pdoc

PAGES = (  # beside the package's own
    "ringcomm.algorithms",
    "ringcomm.bindings",
    "ringcomm.errors",
    "ringcomm.threads",
    "ringcomm.updates",
    "ringcomm.torch",
    r"!ringcomm\.torch\..*",
)
_ROLE = re.compile(r":(?:meth|class|func|mod|data|attr|exc):`[~.]?([^`]+)`")
_FILTER = "to_markdown"  # every docstring goes through it


def without_roles(docstring: str) -> str:
    """:meth:`allreduce` -> `allreduce`, which becomes a link by itself."""
    return _ROLE.sub(r"`\1`", docstring)


def write(folder: Path) -> None:
    """A page per module, an index and a search. What was there before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    pdoc.render.configure(docformat="google", show_source=False, footer_text="ringcomm")
    convert = pdoc.render.env.filters[_FILTER]

    @jinja2.pass_context
    def filtered(context: Any, docstring: str) -> Any:
        return convert(context, without_roles(docstring))

    pdoc.render.env.filters[_FILTER] = filtered
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error parsing type annotation")  # it is shown as it is written
        warnings.filterwarnings("ignore", message=".*may refer to either")  # a clone holds both; they are the same
        warnings.filterwarnings("error", message=".*does not resolve")
        pdoc.pdoc("ringcomm", r"!ringcomm\..*", *PAGES, output_directory=folder)


if __name__ == "__main__":
    write(Path(__file__).with_name("api"))
