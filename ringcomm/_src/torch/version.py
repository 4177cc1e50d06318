"""Checks, when ringcomm.torch is imported, that this PyTorch is recent enough."""

from __future__ import annotations

import re

import torch

OLDEST = (2, 1)  # register_backend takes `devices` from this version on


def check() -> None:
    """Raises ImportError if torch is older than `OLDEST`. The message names both versions."""
    found = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if found < OLDEST:
        raise ImportError(
            f"ringcomm.torch needs PyTorch {'.'.join(map(str, OLDEST))} or later, and this is {torch.__version__}: "
            "pip install -U torch"
        )


check()
