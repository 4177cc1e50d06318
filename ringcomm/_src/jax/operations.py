"""Collectives on JAX's arrays, which bind an `Operation`. `functions.py` has the public API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from ringcomm._src.jax import derivatives, library  # noqa: F401  the primitive's rules
from ringcomm._src.jax.collective import Operation, bind
from ringcomm._src.named import graph_ops
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet

Arrays = Sequence[Any]
Name = str | Sequence[str] | None


def _run(
    collective: int, arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, **parameters: Any
) -> list[Any]:
    names = None
    if isinstance(name, str):
        names = tuple(f"{name}.{i}" for i in range(len(arrays))) if grouped else (name,)
    elif name is not None:
        names = tuple(name)
    return bind(Operation(process_set, collective, names, **parameters), arrays)


def _as_arrays(arrays: Arrays, collective: str = "") -> list[Any]:
    """Converts to JAX arrays. If `collective` is given, raises ValueError for scalars."""
    arrays = [jnp.asarray(array) for array in arrays]
    if collective and not all(array.shape for array in arrays):
        raise ValueError(f"{collective} needs an array with a first dimension, not a scalar")
    return arrays


def allreduce(
    arrays: Arrays, name: Name, grouped: bool, reduction: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    return _run(ALLREDUCE, _as_arrays(arrays), name, grouped, process_set, how=reduction, algorithm=algorithm)


def broadcast(
    arrays: Arrays, root_rank: int, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    root = graph_ops.root_in(process_set, root_rank)
    return _run(BROADCAST, _as_arrays(arrays), name, grouped, process_set, root=root, algorithm=algorithm)


def allgather(
    arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    """Gathers arrays along the first dimension. Arrays without dimensions count as one row."""
    arrays = [jnp.atleast_1d(array) for array in arrays]
    return _run(ALLGATHER, arrays, name, grouped, process_set, algorithm=algorithm)


def reducescatter(
    arrays: Arrays, name: Name, grouped: bool, reduction: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    arrays = _as_arrays(arrays, "reducescatter")
    return _run(REDUCESCATTER, arrays, name, grouped, process_set, how=reduction, algorithm=algorithm)


def alltoall(array: Any, name: Name, process_set: ProcessSet, algorithm: str | None = None) -> Any:
    arrays = _as_arrays([array], "alltoall")
    return _run(ALLTOALL, arrays, name, False, process_set, algorithm=algorithm)[0]
