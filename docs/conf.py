"""Sphinx's configuration of the site. `make docs` builds it, with or without network access."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.ext.autodoc.preserve_defaults import update_default_value
from sphinx.util.inspect import stringify_signature

import ringcomm
from ringcomm._src import cli
from ringcomm._src.base import installed

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from write_gallery import cards  # noqa: E402

# Links to files outside of docs/ are downloads. With the address of a repository they lead there,
# for example to https://host/owner/ringcomm/blob/main/examples/parallel/ddp.py.
REPOSITORY = os.environ.get("RINGCOMM_REPOSITORY", "")
INVENTORIES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "mpi4py": "https://mpi4py.readthedocs.io/en/stable",
    "torch": "https://docs.pytorch.org/docs/stable",
}
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")
NAMED = re.compile(r"\[[\w-]+\.md\]\(([\w-]+\.md[^)]*)\)")
GALLERY = re.compile(r"^```{gallery}\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
PAGE = re.compile(r"(?<![\w/`])docs/([\w-]+)\.md\b")

project = "ringcomm"
author = copyright = "The ringcomm developers"
version = release = ringcomm.__version__.partition("+")[0]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "none"
default_role = "py:obj"
pygments_dark_style = "monokai"
html_theme = "furo"
html_title = f"ringcomm {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
# Pages are the same with and without these. JAX's derivatives write to tables of JAX.
autodoc_mock_imports = ["tensorflow", "keras", "jax", "ringcomm._src.jax.derivatives"]
installed.require_framework = lambda name: None  # mocks have no version
napoleon_google_docstring = False
napoleon_use_ivar = True  # fields of named tuples are members too


def reachable(address: str) -> bool:
    """Returns whether the server of this address answers: without network it does not."""
    try:
        socket.create_connection((urlsplit(address).hostname, 443), timeout=3).close()
    except OSError:
        return False
    return True


intersphinx_mapping = {name: (address, None) for name, address in INVENTORIES.items() if reachable(address)}


class Help(Directive):
    """`{help} bench` shows the output of `ringcomm bench --help`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        os.environ["COLUMNS"] = "84"
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
            cli.main([self.arguments[0], "--help"])
        return [nodes.literal_block(text=output.getvalue(), language="text")]


def link_outside(app: Sphinx, name: str, source: list[str]) -> None:
    """Makes cards of examples, titles of file names, and resolves links to files outside of docs/."""

    def one(match: re.Match[str]) -> str:
        text, path = match.groups()
        if REPOSITORY:
            return f"[{text}]({REPOSITORY}/{path})"
        return f"`{path}`" if (ROOT / path).is_dir() else match[0]

    text = GALLERY.sub(lambda match: cards(match[1]), source[0])
    source[0] = NAMED.sub(r"[](\1)", OUTSIDE.sub(one, text))  # an empty text becomes the title


def link_pages(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Makes links of the pages that docstrings name."""
    lines[:] = [PAGE.sub(r":doc:`/\1`", line) for line in lines]


def skip_repeated(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Skips the exceptions of ringcomm.errors on other pages than its own."""
    error = inspect.isclass(thing) and thing.__name__ in ringcomm.errors.__all__
    return True if error and app.env.docname != "reference/errors" else None


def add_self(app: Sphinx, thing: Any, bound_method: bool) -> None:
    """Adds `self` to the signature that autodoc has stored in the function of a bound method.

    Python removes the first argument again, so that pages would show one argument less.
    """
    if inspect.ismethod(thing) and (stored := vars(thing.__func__).get("__signature__")):
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        vars(thing.__func__)["__signature__"] = stored.replace(parameters=[itself, *stored.parameters.values()])


def sign_class(app: Sphinx, what: str, name: str, thing: Any, options: Any, text: str, returned: Any) -> Any:
    """Shows the arguments of classes with a mocked base. autodoc shows those of the mock."""
    if what != "class" or text != "(*args: Any, **kwargs: Any)":
        return None
    update_default_value(thing.__init__, bound_method=False)
    _, *parameters = inspect.signature(thing.__init__).parameters.values()
    return stringify_signature(inspect.Signature(parameters), unqualified_typehints=True), None


def find_error(app: Sphinx, env: Any, node: Any, contents: nodes.Element) -> nodes.Element | None:
    """Resolves ringcomm.MismatchError to ringcomm.errors.MismatchError."""
    name = str(node.get("reftarget", "")).rpartition(".")[2]
    if name not in ringcomm.errors.__all__:
        return None
    python = env.get_domain("py")
    target = f"ringcomm.errors.{name}"
    return python.resolve_xref(env, node["refdoc"], app.builder, "exc", target, node, contents)


def setup(app: Sphinx) -> None:
    app.add_directive("help", Help)
    app.connect("source-read", link_outside)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-skip-member", skip_repeated)
    app.connect("autodoc-before-process-signature", add_self)
    app.connect("autodoc-process-signature", sign_class)
    app.connect("missing-reference", find_error)
