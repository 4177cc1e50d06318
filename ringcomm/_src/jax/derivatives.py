"""Derivatives of collectives, forward and backward and of any order, and collectives under ``jax.vmap``.

Forward derivatives are exact. Backward derivatives are Horovod's. The gradient of a sum is the sum of all ranks'
gradients, that of an average their average. Gradients of allgather and broadcast are averaged over the ranks. The
gradient of a reducescatter is the gathered gradients, for a sum multiplied by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core
from jax.core import ShapedArray
from jax.interpreters import ad, batching

from ringcomm._src.arrays import rows as parts_of_rows
from ringcomm._src.base.ops import Adasum, Average, Product, Sum
from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from ringcomm._src.jax import library
from ringcomm._src.jax.collective import Operation, bind, collective_p
from ringcomm._src.named.graph_ops import PLAIN, Reduce

Arrays = Sequence[Any]
AVERAGE = Reduce(Average)
SUM = Reduce(Sum)


# ---- forward ---------------------------------------------------------------------------------------------------------
def _jvp(primals: Arrays, tangents: Arrays, *, operation: Operation) -> tuple[list[Any], list[Any]]:
    """Computes tangents by collectives on the operands' tangents.

    Integer operands have no tangents. All other operands take part, even with zero tangents: a rank cannot know which
    tangents are zero on other ranks.
    """
    if operation.how.keeps:
        raise NotImplementedError("gradients of a reduction with error feedback are not defined: leave compression out")
    results = bind(operation, primals)
    moving = [i for i, one in enumerate(primals) if jnp.issubdtype(one.dtype, jnp.inexact)]
    given = [ad.instantiate_zeros(tangents[i]) for i in moving]
    derive = _linear if operation.linear else _extreme_or_product
    moved = dict(zip(moving, derive(operation, moving, primals, results, given), strict=True))
    still = [ad.Zero(ShapedArray(one.shape, one.dtype).to_tangent_aval()) for one in results]
    return results, [moved.get(i, still[i]) for i in range(len(results))]


def _linear(operation: Operation, some: list[int], primals: Arrays, results: Arrays, tangents: Arrays) -> list[Any]:
    known: dict[str, Any] = {}
    if operation.rows is None and operation.collective in (ALLGATHER, ALLTOALL):
        known = _rows_now(operation, primals[0], results[0])
    return bind(operation.derived(".tangent", some, **known), tangents)


def _rows_now(operation: Operation, given: Any, result: Any) -> dict[str, Any]:
    """Exchanges the ranks' row counts in eager mode, where they may differ. Returns changes to the operation."""
    if operation.even or not core.is_concrete(result):
        return {}
    name = operation.derived(".rows")
    size = operation.process_set.size()
    count = given.shape[0]
    (found,) = library.run_now(
        jnp.asarray([count]), operation=name._replace(collective=ALLGATHER, algorithm=None, even=True)
    )
    everybody = tuple(int(rows) for rows in found)
    if all(rows == count for rows in everybody):
        return {}
    if operation.collective == ALLGATHER:
        return {"rows": everybody}
    return {"rows": tuple(rows // size for rows in everybody), "sends": (count // size,) * size}


def _extreme_or_product(
    operation: Operation, some: list[int], primals: Arrays, results: Arrays, tangents: Arrays
) -> list[Any]:
    """Computes tangents of Max, Min and Product.

    Max and Min sum the tangents of the ranks that hold the extreme value, ties in equal shares. Product sums each
    rank's tangent times the product of the other ranks' values, which is correct for zeros too.
    """
    if operation.how.op == Adasum:
        raise NotImplementedError("there is no derivative of Adasum under jax.vmap of a gradient or in forward mode")
    total = operation._replace(collective=ALLREDUCE, how=SUM, algorithm=None)
    given, whole = [primals[i] for i in some], [results[i] for i in some]
    scatters = operation.collective == REDUCESCATTER
    if scatters:
        whole = bind(operation.derived(".whole", some, collective=ALLREDUCE, algorithm=None), given)
    if operation.how.op == Product:
        weights = _others(total.derived(".others", some), given)
    else:
        held = [  # half precision cannot count many ranks exactly
            (x == extreme).astype(jnp.promote_types(x.dtype, jnp.float32))
            for x, extreme in zip(given, whole, strict=True)
        ]
        ties = bind(total.derived(".ties", some), held)
        weights = [(one / count).astype(x.dtype) for one, count, x in zip(held, ties, given, strict=True)]
    products = [weight * tangent for weight, tangent in zip(weights, tangents, strict=True)]
    sums = bind(total.derived(".tangent", some), products)
    return [_part(operation, one) for one in sums] if scatters else sums


def _others(total: Operation, given: Arrays) -> list[Any]:
    size, me = total.process_set.size(), total.process_set.require_rank()
    rows = [jnp.zeros((size, *one.shape), one.dtype).at[me].set(one) for one in given]
    return [jnp.prod(one.at[me].set(1), axis=0) for one in bind(total, rows)]


def _part(operation: Operation, whole: Any) -> Any:
    size, me = operation.process_set.size(), operation.process_set.require_rank()
    lengths = parts_of_rows.parts(whole.shape[0], size)
    return jax.lax.slice_in_dim(whole, sum(lengths[:me]), sum(lengths[: me + 1]))


# ---- backward --------------------------------------------------------------------------------------------------------
def _transpose(gradients: Arrays, *operands: Any, operation: Operation) -> list[Any]:
    given = [ad.instantiate_zeros(one) for one in gradients]
    back = operation.derived(".gradient")
    size, me = operation.process_set.size(), operation.process_set.require_rank()
    if operation.collective == ALLREDUCE:
        return bind(back, given)
    if operation.collective == ALLTOALL:
        return bind(back._replace(rows=operation.sends, sends=operation.rows), given)
    if operation.collective == REDUCESCATTER:
        names = [operation.derived(".gradient", [i]) for i in range(len(given))]
        counts = [one.aval.shape[0] for one in operands]
        return [_gathered(*one) for one in zip(names, given, counts, strict=True)]
    means = bind(back._replace(collective=ALLREDUCE, how=AVERAGE, algorithm=None, rows=None), given)
    if operation.collective == BROADCAST:
        return [one if me == operation.root else jnp.zeros_like(one) for one in means]
    mine = [operation.rows or (one.aval.shape[0],) * size for one in operands]
    return [
        jax.lax.slice_in_dim(one, sum(rows[:me]), sum(rows[: me + 1])) for one, rows in zip(means, mine, strict=True)
    ]


def _gathered(back: Operation, mine: Any, rows: int) -> Any:
    """Returns the gradient of a reducescatter of `rows`. Parts may differ by one row; shorter parts are padded."""
    size, how = back.process_set.size(), back.how
    factor = how.pre * how.post * (size if how.op == Sum else 1)
    lengths = parts_of_rows.parts(rows, size)
    filled = jnp.pad(mine * factor, [(0, lengths[0] - mine.shape[0]), *[(0, 0)] * (mine.ndim - 1)])
    (whole,) = bind(back._replace(collective=ALLGATHER, how=PLAIN, algorithm=None), [filled])
    parts = [whole[lengths[0] * rank : lengths[0] * rank + n] for rank, n in enumerate(lengths)]
    return jnp.concatenate(parts)


# ---- vmap ------------------------------------------------------------------------------------------------------------
def _batch(arrays: Arrays, axes: Sequence[Any], *, operation: Operation) -> tuple[list[Any], list[Any]]:
    """Runs one collective for all elements of the mapped axis, whose size must be identical on all ranks."""
    if operation.how.op == Adasum and operation.collective == ALLREDUCE:
        raise ValueError("Adasum is of whole arrays and cannot be mapped over: call it outside of jax.vmap")
    if operation.look is not None:
        return bind(operation, arrays), [None]
    axes = list(axes)
    if operation.collective in (ALLGATHER, ALLTOALL, REDUCESCATTER):  # keeps rows in the first dimension
        arrays = [one if axis is None else jnp.moveaxis(one, axis, 1) for one, axis in zip(arrays, axes, strict=True)]
        axes = [None if axis is None else 1 for axis in axes]
    return bind(operation._replace(even=operation.rows is None), arrays), axes


ad.primitive_jvps[collective_p] = _jvp
ad.primitive_transposes[collective_p] = _transpose
batching.primitive_batchers[collective_p] = _batch
