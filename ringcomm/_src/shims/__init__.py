"""A folder for the front of Python's path, where programs find ringcomm under another name."""

from __future__ import annotations

import os
from collections.abc import Mapping

FOLDER = os.path.dirname(os.path.abspath(__file__))


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What to set for a program, and for those that it starts, to find ringcomm as `horovod`."""
    path = environment.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{FOLDER}{os.pathsep}{path}" if path else FOLDER}
