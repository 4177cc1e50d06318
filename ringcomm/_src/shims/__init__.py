"""Holds packages through which programs find ringcomm under another name.

`ringrun --as-horovod` puts this folder first in PYTHONPATH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

FOLDER = os.path.dirname(os.path.abspath(__file__))


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns variables with which a program and its children import ringcomm as `horovod`."""
    path = environment.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{FOLDER}{os.pathsep}{path}" if path else FOLDER}
