"""Runs programs and libraries written for Horovod unchanged: `horovod` becomes ringcomm.

There are three ways. The first two change no file; the third adds one line to the program::

    ringrun -np 2 --as-horovod python train.py
    ringrun -np 2 python -m ringcomm.as_horovod train.py  # or: -m package.module
    import ringcomm.as_horovod                          # before anything imports horovod

Then ``horovod.torch``, ``.tensorflow``, ``.keras``, ``.common``, ``.data``, ``.ray`` and
``.spark``, with all their submodules, are the modules of ``ringcomm``, not copies. So a class is
the same object under both names. ``horovod`` and ``horovod.runner`` contain ``run``. An import of
another module of Horovod raises ModuleNotFoundError. An installed Horovod is not used.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

from ringcomm._src import shims
from ringcomm._src.launch.run_function import run

__all__ = ["VERSION", "main"]

VERSION = "0.28.1"  # the version of Horovod with this interface
# horovod.NAME is ringcomm.NAME, with its submodules.
_SERVED = ("torch", "tensorflow", "keras", "common", "data", "ray", "spark")

logger = logging.getLogger("ringcomm")


class _Alias(Loader):
    """Loads a module that exists under another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        """Returns None: Python then makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._name)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != "horovod" or not rest:
            return None
        ours = f"ringcomm.{rest}"
        if rest.partition(".")[0] not in _SERVED or find_spec(ours) is None:
            names = ", ".join(f"horovod.{name}" for name in _SERVED if find_spec(f"ringcomm.{name}"))
            raise ModuleNotFoundError(
                f"{fullname} has no counterpart in ringcomm, which replaces Horovod in this program; available are "
                f"{names} and horovod.run",
                name=fullname,
            )
        return ModuleSpec(fullname, _Alias(ours), is_package=True)


def _package(name: str) -> ModuleType:
    """Returns a package that contains only `run`, for modules without a counterpart in ringcomm."""
    module = ModuleType(name, "Horovod's interface, implemented by ringcomm.")
    module.__path__ = []
    module.__dict__.update({"run": run, "__version__": VERSION, "__file__": __file__})
    return module


def _install() -> None:
    present = sys.modules.get("horovod")
    if present is not None and not str(getattr(present, "__file__", "")).startswith(shims.FOLDER):
        raise ImportError(f"horovod has already been imported ({present!r}): import ringcomm.as_horovod before it")
    installed = PathFinder.find_spec("horovod", [folder for folder in sys.path if folder != shims.FOLDER])
    if installed is not None and installed.origin and _is_first_rank():
        logger.warning("in this program horovod is ringcomm, not the package installed in %s", installed.origin)
    sys.meta_path.insert(0, _Finder())
    sys.modules["horovod"] = _package("horovod")
    runner = _package("horovod.runner")
    sys.modules["horovod.runner"] = sys.modules["horovod"].__dict__["runner"] = runner


def _is_first_rank() -> bool:
    """Returns True if this is rank 0 according to the launcher's variables."""
    from ringcomm._src.launch.rank import RANK_VARIABLES, first_number

    return first_number(RANK_VARIABLES) == 0


def main() -> None:
    """Replaces this process by an interpreter that imports ringcomm as ``horovod``."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit("usage: python -m ringcomm.as_horovod train.py ..., or python -m ringcomm.as_horovod -m module ...")
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **shims.variables(os.environ)})


if __name__ == "__main__":
    main()
else:
    _install()
