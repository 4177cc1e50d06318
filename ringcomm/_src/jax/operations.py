"""Collectives on JAX's arrays: fill in an `Operation` and bind it. `functions.py` makes the public API of them."""

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


def _run(collective: int, arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, **more: Any) -> list[Any]:
    names = None
    if isinstance(name, str):
        names = tuple(f"{name}.{i}" for i in range(len(arrays))) if grouped else (name,)
    elif name is not None:
        names = tuple(name)
    return bind(Operation(process_set, collective, names, **more), arrays)


def _given(arrays: Arrays, collective: str = "") -> list[Any]:
    """Converts to JAX arrays. ``collective``: name of one that works along the first dimension, for the error."""
    given = [jnp.asarray(one) for one in arrays]
    if collective and not all(one.shape for one in given):
        raise ValueError(f"{collective} works along the first dimension; the array has none")
    return given


def allreduce(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    return _run(ALLREDUCE, _given(arrays), name, grouped, process_set, how=how, algorithm=algorithm)


def broadcast(
    arrays: Arrays, root_rank: int, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    root = graph_ops.root_in(process_set, root_rank)
    return _run(BROADCAST, _given(arrays), name, grouped, process_set, root=root, algorithm=algorithm)


def allgather(
    arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    """Gathers arrays along the first dimension. Arrays without dimensions count as one row."""
    given = [jnp.atleast_1d(one) for one in arrays]
    return _run(ALLGATHER, given, name, grouped, process_set, algorithm=algorithm)


def reducescatter(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given = _given(arrays, "reducescatter")
    return _run(REDUCESCATTER, given, name, grouped, process_set, how=how, algorithm=algorithm)


def alltoall(array: Any, name: Name, process_set: ProcessSet, algorithm: str | None = None) -> Any:
    given = _given([array], "alltoall")
    return _run(ALLTOALL, given, name, False, process_set, algorithm=algorithm)[0]
