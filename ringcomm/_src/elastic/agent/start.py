"""Starts a module of ringcomm that needs the standard library only, without loading the package.

``python -IS start.py ringcomm._src.elastic.agent.host``.
"""

import importlib
import os
import sys
import types


def bare_command(module: str) -> list[str]:
    """Returns the command that runs this module of ringcomm, on any host."""
    return [sys.executable, "-IS", os.path.abspath(__file__), module]


def bare(name: str, folder: str) -> None:
    """Registers a package without running its __init__, so that its modules can be imported."""
    package = types.ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package


def main() -> int:
    root = os.path.abspath(__file__).rpartition(f"{os.sep}_src{os.sep}")[0]
    for name in ("", "._src", "._src.elastic", "._src.elastic.agent", "._src.launch"):
        bare(f"ringcomm{name}", root + name.replace(".", os.sep))
    status: int = importlib.import_module(sys.argv.pop(1)).main()
    return status


if __name__ == "__main__":
    sys.exit(main())
