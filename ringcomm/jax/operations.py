"""Collectives on JAX's arrays, of which gradients know nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _with_rows(collective: str, arrays: Arrays) -> list[Any]:
    given = [jnp.asarray(one) for one in arrays]
    if not all(one.shape for one in given):
        raise ValueError(f"{collective} works along the first dimension; the array has none")
    return given


def allreduce(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given = [jnp.asarray(one) for one in arrays]
    what = _describe(ALLREDUCE, given, name, grouped, process_set, how=how, algorithm=algorithm)
    return library.run(what, given, _shapes(given), True) if given else []


def broadcast(
    arrays: Arrays, root_rank: int, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given, root = [jnp.asarray(one) for one in arrays], sites.root_in(process_set, root_rank)
    what = _describe(BROADCAST, given, name, grouped, process_set, root=root, algorithm=algorithm)
    return library.run(what, given, _shapes(given), True) if given else []


def allgather(
    arrays: Arrays, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given = [jnp.asarray(one) for one in arrays]
    what = _describe(ALLGATHER, given, name, grouped, process_set, algorithm=algorithm)
    return library.run(what, given, _shapes(given, lambda rows: rows * process_set.size())) if given else []


def reducescatter(
    arrays: Arrays, name: Name, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    given, size, me = _with_rows("reducescatter", arrays), process_set.size(), process_set.require_rank()
    what = _describe(REDUCESCATTER, given, name, grouped, process_set, how=how, algorithm=algorithm)
    return library.run(what, given, _shapes(given, lambda rows: part(rows, size, me))) if given else []


def alltoall(array: Any, name: Name, process_set: ProcessSet, algorithm: str | None = None) -> Any:
    given = _with_rows("alltoall", [array])
    what = _describe(ALLTOALL, given, name, False, process_set, algorithm=algorithm)
    return library.run(what, given, _shapes(given))[0]
