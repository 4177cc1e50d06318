"""Checks, when ringcomm is imported, that its compiled extension is present.

The root of a clone hides an installed package, because Python searches the current folder first.
"""

from __future__ import annotations

import importlib.util
import os

MISSING = "ringcomm is imported from a folder of sources without its compiled extension"


def check() -> None:
    """Raises ImportError, which names the folder, if the extension is missing."""
    if importlib.util.find_spec("ringcomm._src.core._core") is None:
        folder = os.path.abspath(__file__).rpartition(f"{os.sep}_src{os.sep}")[0]
        raise ImportError(
            f"{MISSING}: {folder}, which hides an installed package. Start Python in another folder, or build the "
            "extension here with make wheel"
        )


check()
