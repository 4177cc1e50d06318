"""Collectives on JAX's arrays, of which gradients know nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ringcomm import sites
from ringcomm.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from ringcomm.jax import library
from ringcomm.process_sets import ProcessSet
from ringcomm.rows import part
from ringcomm.sites import Description, Reduce

Arrays = Sequence[Any]
Name = str | Sequence[str] | None


def _describe(
    collective: int, arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, **more: Any
) -> Description:
    traced = any(isinstance(one, jax.core.Tracer) for one in arrays)
    names = sites.names(process_set, collective, name, len(arrays), grouped, library.caller if traced else None)
    return Description(process_set, collective, names, tuple(one.dtype.name for one in arrays), even=traced, **more)


def _shapes(arrays: Arrays, first: Callable[[int], int] | None = None) -> list[jax.ShapeDtypeStruct]:
    """`first`: of the results' rows, of an array's."""
    return [
        jax.ShapeDtypeStruct(one.shape if first is None else (first(_rows(one)), *one.shape[1:]), one.dtype)
        for one in arrays
    ]


def _rows(array: Any) -> int:
    return array.shape[0] if array.shape else 1


def _given(arrays: Arrays, collective: str = "") -> list[Any]:
    """``collective``: one that works along the first dimension."""
    given = [jnp.asarray(one) for one in arrays]
    if collective and not all(one.shape for one in given):
        raise ValueError(f"{collective} works along the first dimension; the array has none")
    return given


def _run(
    collective: int,
    given: list[Any],
    name: Name,
    grouped: bool,
    process_set: ProcessSet,
    first: Callable[[int], int] | None = None,
    **more: Any,
) -> list[Any]:
    """`first`: as of `_shapes`; where there is none, results lie in the arrays' memory."""
    what = _describe(collective, given, name, grouped, process_set, **more)
    return library.run(what, given, _shapes(given, first), first is None) if given else []


def allreduce(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    return _run(ALLREDUCE, _given(arrays), name, grouped, process_set, how=how, algorithm=algorithm)


def broadcast(
    arrays: Arrays, root_rank: int, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    root = sites.root_in(process_set, root_rank)
    return _run(BROADCAST, _given(arrays), name, grouped, process_set, root=root, algorithm=algorithm)


def allgather(
    arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    size = process_set.size()
    return _run(ALLGATHER, _given(arrays), name, grouped, process_set, lambda rows: rows * size, algorithm=algorithm)


def reducescatter(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given, size, me = _given(arrays, "reducescatter"), process_set.size(), process_set.require_rank()
    mine = partial(part, size=size, rank=me)
    return _run(REDUCESCATTER, given, name, grouped, process_set, mine, how=how, algorithm=algorithm)


def alltoall(array: Any, name: Name, process_set: ProcessSet, algorithm: str | None = None) -> Any:
    given = _given([array], "alltoall")
    what = _describe(ALLTOALL, given, name, False, process_set, algorithm=algorithm)
    return library.run(what, given, _shapes(given))[0]
