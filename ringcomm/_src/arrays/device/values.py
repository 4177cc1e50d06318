"""Values that the host must read, for example splits, if callers give GPU arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcomm._src.arrays import numpy_kind
from ringcomm._src.base.errors import UnsupportedError


def host_copy(x: Any) -> Any:
    """Returns a host copy of a GPU's array (torch: a CPU tensor); other objects unchanged."""
    if isinstance(x, np.ndarray) or not numpy_kind.is_device_array(x):
        return x
    if hasattr(x, "cpu"):
        return x.detach().cpu()
    return numpy_kind.device_kind().to_host(x)


def require_host_memory(x: Any, what: str) -> None:
    """Raises UnsupportedError for an array of a GPU."""
    if not isinstance(x, np.ndarray) and numpy_kind.is_device_array(x):
        raise UnsupportedError(
            f"{what} needs arrays in host memory, but this {type(x).__name__} is on a GPU: give a NumPy array"
        )
