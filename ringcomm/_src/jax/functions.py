"""The operations of ``ringcomm.jax``: differentiable collectives on arrays and pytrees, and the optax wrapper.

Gradients are those of Horovod's operations for PyTorch. The collectives also run under ``jax.jit``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringcomm._src.base.ops import Adasum, Average, Sum, chosen_op, core_op
from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression.compression import NoneCompressor, parts_of, resolved
from ringcomm._src.jax import operations, replicas
from ringcomm._src.jax.reduction import GradientReduction
from ringcomm._src.named import objects
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


def _reduced(arrays: Sequence[Any], how: Reduce, run: Callable[[Sequence[Any], Reduce], list[Any]]) -> list[Any]:
    """Runs the reduction `run` in a differentiable form.

    Derivatives of Max, Min and Product are taken at the scaled values. Adasum's gradient is the Adasum of the
    gradients, as in Horovod.
    """
    if how.op == Adasum:
        adasum = jax.custom_vjp(lambda *given: tuple(run(given, how)))
        adasum.defvjp(lambda *given: (tuple(run(given, how)), None), lambda _, gradients: tuple(run(gradients, how)))
        return list(adasum(*arrays))
    floating = all(jnp.issubdtype(one.dtype, jnp.inexact) for one in arrays)
    if how.op in (Average, Sum) or how.pre == how.post == 1 or not floating:
        return run(arrays, how)
    results = run([one * how.pre for one in arrays], how._replace(pre=1.0, post=1.0))
    return [one * how.post for one in results]


def grouped_allreduce(
    arrays: Sequence[Any],
    op: Any = None,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = NoneCompressor,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
    grouped: bool = True,
) -> list[Any]:
    """Reduces several arrays as :func:`allreduce` does, in one operation."""
    wire, compressor = parts_of(compression)
    pairs = [compressor.compress(jnp.asarray(one)) for one in arrays]
    how = Reduce(chosen_op(op, None), prescale_factor, postscale_factor, wire)
    reduced = _reduced(
        [sent for sent, _ in pairs],
        how,
        lambda given, how: operations.allreduce(given, name, grouped, how, process_set, algorithm),
    )
    return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]


def allreduce(
    array: Any,
    op: Any = None,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Any = NoneCompressor,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Reduces ``array`` over the ranks of ``process_set`` and returns the result on each of them.

    It runs under ``jax.jit`` and JAX's other transformations. The gradient of ``Max`` and ``Min`` is that of the ranks
    with the extreme value, ties in equal shares.

    Args:
        array: an array with the same dtype and shape on every rank.
        op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        name: name that matches the operations of the ranks; None: they match by order, in a compiled program among
            its collectives.
        prescale_factor, postscale_factor: multiply every rank's values before the reduction, and the result after it.
        compression: wire format of wider floating data between hosts.
        process_set: the ranks that take part.
        algorithm: name of the algorithm; None: the core chooses.

    Raises:
        MismatchError: on every rank, if dtypes, shapes or ops differ. A compiled function raises JAX's
            XlaRuntimeError, with a text that begins with the exception's name.
        ValueError: the program is for several local devices; Adasum under ``jax.vmap``.
    """
    how = op, name, prescale_factor, postscale_factor, compression, process_set, algorithm
    return grouped_allreduce([array], *how, grouped=False)[0]


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Concatenates every rank's ``array`` along the first dimension.

    Under ``jax.jit`` the first dimension must be identical on all ranks. Each rank's gradient is its own rows of the
    averaged gradient.
    """
    return operations.allgather([array], name, False, process_set, algorithm)[0]


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Returns the root's array on every rank.

    The root's gradient is the average over the ranks; the gradient of the other ranks is zero.
    """
    return operations.broadcast([array], root_rank, name, False, process_set, algorithm)[0]


def reducescatter(
    array: Any,
    op: Any = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Reduces ``array`` over the ranks and returns part r, along the first dimension, to rank r of the set."""
    how = Reduce(core_op(op), prescale_factor, postscale_factor)
    return _reduced(
        [jnp.asarray(array)],
        how,
        lambda given, how: operations.reducescatter(given, name, False, how, process_set, algorithm),
    )[0]


def alltoall(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Sends part q of ``array`` to rank q of the set, and returns the received parts.

    Parts are even, along the first dimension. The gradient's rows are sent back to the ranks that sent them.
    """
    return operations.alltoall(array, name, process_set, algorithm)


# ---- pytrees ---------------------------------------------------------------------------------------------------------
def broadcast_parameters(parameters: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Returns the pytree (parameters, optimizer states) with the root's values, in one operation.

    Leaves that are no arrays of numbers (typed random keys, texts) are returned unchanged, and must be identical on all
    ranks.
    """
    leaves, tree = jax.tree.flatten(parameters)
    arrays = {i: jnp.asarray(one) for i, one in enumerate(leaves) if _is_of_numbers(one)}
    names = [f"parameters.{i}" for i in range(len(arrays))]
    sent = operations.broadcast(list(arrays.values()), root_rank, names, True, process_set)
    values = dict(zip(arrays, sent, strict=True))
    return jax.tree.unflatten(tree, [values.get(i, one) for i, one in enumerate(leaves)])


def _is_of_numbers(leaf: Any) -> bool:
    """Returns False for typed random keys, texts, objects and dates."""
    if isinstance(leaf, jax.Array):
        return not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    numbers = np.ndarray | np.generic | int | float | complex
    return isinstance(leaf, numbers) and np.asarray(leaf).dtype.kind not in "OSUMm"


def allreduce_gradients(
    gradients: Any,
    op: Any = Average,
    name: str = "gradients",
    compression: Any = NoneCompressor,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Reduces a pytree of gradients over all ranks, in one operation. It runs under ``jax.jit`` too.

    With a wire format with error feedback (``Compression.onebit``), a program keeps the residuals and adds them in its
    next run. A program that is traced again begins without residuals. This operation is not differentiable then.
    """
    compression = resolved(compression)
    if process_set.size() == 1:
        return gradients
    leaves, tree = jax.tree.flatten(gradients)
    if isinstance(compression, WireFormat):
        reduction = GradientReduction(name, op, compression, process_set=process_set, algorithm=algorithm)
        return jax.tree.unflatten(tree, reduction(leaves, ()))
    how = op, name, 1.0, 1.0, compression, process_set, algorithm
    return jax.tree.unflatten(tree, grouped_allreduce(leaves, *how))


def distributed(transformation: Any, **options: Any) -> Any:
    """Returns an optax transformation that reduces gradients over all ranks before each update.

    Args:
        transformation: an ``optax.GradientTransformation``.
        options: options of :func:`allreduce_gradients`.

    If ``update`` gets the parameters (its third argument), ranks compare them after the first update and every 1,000
    updates (``RINGCOMM_REPLICA_CHECK``). A warning names the parameters that differ. :func:`check_replicas` compares
    them at any time.
    """

    resolved(options.get("compression"))  # raises for an unknown compression

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        replicas.look_at(params, updates, options.get("name", "gradients"), options.get("process_set"))
        return transformation.update(allreduce_gradients(updates, **options), state, params, **more)

    if hasattr(transformation, "_replace"):
        return transformation._replace(update=update)
    changed = copy.copy(transformation)  # optax.MultiSteps, which has further methods
    changed.update = update
    return changed


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's object on every rank."""
    return objects.broadcast_object(obj, root_rank, name, process_set, "jax")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns every rank's object, in rank order."""
    return objects.allgather_object(obj, name, process_set, "jax")
