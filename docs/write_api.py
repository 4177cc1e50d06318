"""Writes docs/api/, the API reference as HTML, from the docstrings. Needs the extra `docs` (pdoc).

`make docs` runs this script.
"""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import jinja2
import pdoc

PAGES = (  # in addition to the page of the package itself
    "ringcomm.algorithms",
    "ringcomm.bindings",
    "ringcomm.errors",
    "ringcomm.threads",
    "ringcomm.updates",
    "ringcomm.torch",
    r"!ringcomm\.torch\..*",
)
_ROLE = re.compile(r":(?:meth|class|func|mod|data|attr|exc):`[~.]?([^`]+)`")
_FILTER = "to_markdown"  # the filter of pdoc that converts each docstring


def without_roles(docstring: str) -> str:
    """Replaces :meth:`allreduce` by `allreduce`, of which pdoc makes a link."""
    return _ROLE.sub(r"`\1`", docstring)


def write(folder: Path) -> None:
    """Writes a page for each module, an index and a search. Removes the old content of `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    pdoc.render.configure(docformat="numpy", show_source=False, footer_text="ringcomm")
    convert = pdoc.render.env.filters[_FILTER]

    @jinja2.pass_context
    def filtered(context: Any, docstring: str) -> Any:
        return convert(context, without_roles(docstring))

    pdoc.render.env.filters[_FILTER] = filtered
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error parsing type annotation")  # pdoc then shows its text
        warnings.filterwarnings("ignore", message=".*may refer to either")  # a clone has a folder of this name too
        warnings.filterwarnings("error", message=".*does not resolve")
        pdoc.pdoc("ringcomm", r"!ringcomm\..*", *PAGES, output_directory=folder)


if __name__ == "__main__":
    write(Path(__file__).with_name("api"))
