"""Values that the host must read, such as splits, given by callers as arrays of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcomm._src.arrays import numpy_kind
from ringcomm._src.base.errors import UnsupportedError


def host_copy(x: Any) -> Any:
    """Returns a host copy of an array of a GPU (a CPU tensor for torch); returns any other object unchanged."""
    if isinstance(x, np.ndarray) or not numpy_kind.elsewhere(x):
        return x
    if hasattr(x, "cpu"):
        return x.detach().cpu()
    return numpy_kind.device_kind().to_host(x)


def refuse_elsewhere(x: Any, what: str) -> None:
    """Raises UnsupportedError for an array of a GPU."""
    if not isinstance(x, np.ndarray) and numpy_kind.elsewhere(x):
        raise UnsupportedError(
            f"{what} takes arrays in the host's memory, and this {type(x).__name__} lies on a GPU: give a NumPy array"
        )
