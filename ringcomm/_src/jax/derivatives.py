"""Derivatives of collectives, in both modes and of any order, and collectives under ``jax.vmap``.

Forward derivatives are exact. Backward derivatives are Horovod's. The gradient of a sum is the sum
of all ranks' gradients; the gradient of an average is their average. Gradients of allgather and
broadcast are averaged over the ranks. For reducescatter, the gradient consists of the gathered
gradients; with Sum, they are multiplied by the number of ranks.
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

    Integer operands have no tangents. All other operands take part, even with zero tangents: a rank
    cannot know which tangents are zero on other ranks.
    """
    if operation.how.keeps:
        raise NotImplementedError("a reduction with error feedback has no gradient: do not pass compression= to it")
    results = bind(operation, primals)
    differentiable = [i for i, primal in enumerate(primals) if jnp.issubdtype(primal.dtype, jnp.inexact)]
    dense_tangents = [ad.instantiate_zeros(tangents[i]) for i in differentiable]
    rule = _linear if operation.linear else _extreme_or_product
    result_tangents = dict(
        zip(differentiable, rule(operation, differentiable, primals, results, dense_tangents), strict=True)
    )
    zeros = [ad.Zero(ShapedArray(result.shape, result.dtype).to_tangent_aval()) for result in results]
    return results, [result_tangents.get(i, zeros[i]) for i in range(len(results))]


def _linear(operation: Operation, indices: list[int], primals: Arrays, results: Arrays, tangents: Arrays) -> list[Any]:
    row_changes: dict[str, Any] = {}
    if operation.rows is None and operation.collective in (ALLGATHER, ALLTOALL):
        row_changes = _exchange_rows(operation, primals[0], results[0])
    return bind(operation.derived(".tangent", indices, **row_changes), tangents)


def _exchange_rows(operation: Operation, operand: Any, result: Any) -> dict[str, Any]:
    """Exchanges the row counts in eager mode, where they may differ between ranks.

    Returns changes to the operation.
    """
    if operation.even or not core.is_concrete(result):
        return {}
    name = operation.derived(".rows")
    size = operation.process_set.size()
    count = operand.shape[0]
    (gathered,) = library.run_eagerly(
        jnp.asarray([count]), operation=name._replace(collective=ALLGATHER, algorithm=None, even=True)
    )
    all_rows = tuple(int(rows) for rows in gathered)
    if all(rows == count for rows in all_rows):
        return {}
    if operation.collective == ALLGATHER:
        return {"rows": all_rows}
    return {"rows": tuple(rows // size for rows in all_rows), "sends": (count // size,) * size}


def _extreme_or_product(
    operation: Operation, indices: list[int], primals: Arrays, results: Arrays, tangents: Arrays
) -> list[Any]:
    """Computes tangents of Max, Min and Product.

    For Max and Min, the result is the mean tangent of the ranks that hold the extreme value.
    Product sums each rank's tangent times the product of the other ranks' values. Unlike a
    division, this is correct for zeros.
    """
    if operation.how.op == Adasum:
        raise NotImplementedError(
            "Adasum has no derivative in forward mode or under jax.vmap of a gradient: use Average or Sum there"
        )
    total = operation._replace(collective=ALLREDUCE, how=SUM, algorithm=None)
    operands, extremes = [primals[i] for i in indices], [results[i] for i in indices]
    scatters = operation.collective == REDUCESCATTER
    if scatters:
        extremes = bind(operation.derived(".whole", indices, collective=ALLREDUCE, algorithm=None), operands)
    if operation.how.op == Product:
        weights = _products_of_others(total.derived(".others", indices), operands)
    else:
        masks = [  # half precision cannot count many ranks exactly
            (x == extreme).astype(jnp.promote_types(x.dtype, jnp.float32))
            for x, extreme in zip(operands, extremes, strict=True)
        ]
        ties = bind(total.derived(".ties", indices), masks)
        weights = [(mask / count).astype(x.dtype) for mask, count, x in zip(masks, ties, operands, strict=True)]
    products = [weight * tangent for weight, tangent in zip(weights, tangents, strict=True)]
    sums = bind(total.derived(".tangent", indices), products)
    return [_own_part(operation, product_sum) for product_sum in sums] if scatters else sums


def _products_of_others(total: Operation, operands: Arrays) -> list[Any]:
    size, rank = total.process_set.size(), total.process_set.require_rank()
    rows = [jnp.zeros((size, *operand.shape), operand.dtype).at[rank].set(operand) for operand in operands]
    return [jnp.prod(factors.at[rank].set(1), axis=0) for factors in bind(total, rows)]


def _own_part(operation: Operation, array: Any) -> Any:
    size, rank = operation.process_set.size(), operation.process_set.require_rank()
    lengths = parts_of_rows.even_parts(array.shape[0], size)
    return jax.lax.slice_in_dim(array, sum(lengths[:rank]), sum(lengths[: rank + 1]))


# ---- backward --------------------------------------------------------------------------------------------------------
def _transpose(gradients: Arrays, *operands: Any, operation: Operation) -> list[Any]:
    cotangents = [ad.instantiate_zeros(gradient) for gradient in gradients]
    transposed = operation.derived(".gradient")
    size, rank = operation.process_set.size(), operation.process_set.require_rank()
    if operation.collective == ALLREDUCE:
        return bind(transposed, cotangents)
    if operation.collective == ALLTOALL:
        return bind(transposed._replace(rows=operation.sends, sends=operation.rows), cotangents)
    if operation.collective == REDUCESCATTER:
        names = [operation.derived(".gradient", [i]) for i in range(len(cotangents))]
        counts = [operand.aval.shape[0] for operand in operands]
        return [_gathered(*arguments) for arguments in zip(names, cotangents, counts, strict=True)]
    means = bind(transposed._replace(collective=ALLREDUCE, how=AVERAGE, algorithm=None, rows=None), cotangents)
    if operation.collective == BROADCAST:
        return [mean if rank == operation.root else jnp.zeros_like(mean) for mean in means]
    row_counts = [operation.rows or (operand.aval.shape[0],) * size for operand in operands]
    return [
        jax.lax.slice_in_dim(mean, sum(rows[:rank]), sum(rows[: rank + 1]))
        for mean, rows in zip(means, row_counts, strict=True)
    ]


def _gathered(transposed: Operation, cotangent: Any, rows: int) -> Any:
    """Returns the gradient of a reducescatter of `rows` rows.

    Parts may differ by one row; shorter parts are padded.
    """
    size, reduction = transposed.process_set.size(), transposed.how
    factor = reduction.pre * reduction.post * (size if reduction.op == Sum else 1)
    lengths = parts_of_rows.even_parts(rows, size)
    filled = jnp.pad(cotangent * factor, [(0, lengths[0] - cotangent.shape[0]), *[(0, 0)] * (cotangent.ndim - 1)])
    (gathered,) = bind(transposed._replace(collective=ALLGATHER, how=PLAIN, algorithm=None), [filled])
    parts = [gathered[lengths[0] * rank : lengths[0] * rank + n] for rank, n in enumerate(lengths)]
    return jnp.concatenate(parts)


# ---- vmap ------------------------------------------------------------------------------------------------------------
def _batch(arrays: Arrays, axes: Sequence[Any], *, operation: Operation) -> tuple[list[Any], list[Any]]:
    """Runs one collective for the mapped axis, which must have the same size on all ranks."""
    if operation.how.op == Adasum and operation.collective == ALLREDUCE:
        raise ValueError("Adasum reduces each array as one vector, so it cannot be mapped: call it outside of jax.vmap")
    if operation.look is not None:
        return bind(operation, arrays), [None]
    axes = list(axes)
    if operation.collective in (ALLGATHER, ALLTOALL, REDUCESCATTER):  # keeps rows in the first dimension
        arrays = [
            array if axis is None else jnp.moveaxis(array, axis, 1) for array, axis in zip(arrays, axes, strict=True)
        ]
        axes = [None if axis is None else 1 for axis in axes]
    return bind(operation._replace(even=operation.rows is None), arrays), axes


ad.primitive_jvps[collective_p] = _jvp
ad.primitive_transposes[collective_p] = _transpose
batching.primitive_batchers[collective_p] = _batch
