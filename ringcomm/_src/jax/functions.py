"""The operations of ``ringcomm.jax``: gradients flow through them, as Horovod's do through PyTorch's."""

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
    """The reduction `run`, in a form that has derivatives. Those of extreme values and products are taken of the scaled
    values; Adasum's gradient is the Adasum of the gradients, as in Horovod."""
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
    """:func:`allreduce` of several arrays that run together."""
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
    """The reduction of every rank's ``array``, on every rank of ``process_set``. Also under ``jax.jit`` and JAX's other
    transformations. The gradient of ``Max`` and ``Min`` goes to the ranks that hold the value, ties in equal shares.

    Args:
        array: of the same dtype and shape on every rank.
        op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        name: pairs the operations of the ranks; None: the order, in a compiled program among its collectives.
        prescale_factor, postscale_factor: multiply every rank's values before, and the result after.
        compression: what wider floating data travels as between hosts.
        process_set: the ranks that take part.
        algorithm: what runs; None: chosen.

    Raises:
        MismatchError: on every rank, if dtypes, shapes or ops differ; out of a compiled function it is JAX's
            XlaRuntimeError, whose text begins with the exception's name.
        ValueError: in a program for several local devices; Adasum under ``jax.vmap``.
    """
    how = op, name, prescale_factor, postscale_factor, compression, process_set, algorithm
    return grouped_allreduce([array], *how, grouped=False)[0]


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Every rank's ``array``, one after the other along the first dimension, which under ``jax.jit`` must be the same
    on all ranks. Its gradient is averaged; each rank takes the rows that it gave."""
    return operations.allgather([array], name, False, process_set, algorithm)[0]


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """The root's array, on every rank. Its gradient is averaged and goes to the root; elsewhere it is zero."""
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
    """The reduction of every rank's ``array``, cut along the first dimension: rank r of the set gets part r."""
    how = Reduce(core_op(op), prescale_factor, postscale_factor)
    return _reduced(
        [jnp.asarray(array)],
        how,
        lambda given, how: operations.reducescatter(given, name, False, how, process_set, algorithm),
    )[0]


def alltoall(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Sends part q of ``array`` (even parts, along the first dimension) to rank q of the set; gives the parts received.
    The gradient's rows go back where they came from."""
    return operations.alltoall(array, name, process_set, algorithm)


# ---- pytrees ---------------------------------------------------------------------------------------------------------
def broadcast_parameters(parameters: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """A pytree with the root's values, all in one operation: parameters, optimizer states. What is no array of numbers
    (typed random keys, texts) stays as it is, and must be the same on all ranks."""
    leaves, tree = jax.tree.flatten(parameters)
    arrays = {i: jnp.asarray(one) for i, one in enumerate(leaves) if _is_of_numbers(one)}
    names = [f"parameters.{i}" for i in range(len(arrays))]
    sent = operations.broadcast(list(arrays.values()), root_rank, names, True, process_set)
    values = dict(zip(arrays, sent, strict=True))
    return jax.tree.unflatten(tree, [values.get(i, one) for i, one in enumerate(leaves)])


def _is_of_numbers(leaf: Any) -> bool:
    """Not of typed random keys, texts, objects or dates."""
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
    """A pytree of gradients, reduced over all ranks in one operation. Under ``jax.jit``, too.

    Of a wire format with error feedback (``Compression.onebit``) a program keeps what is left out, and adds it in its
    next run; a program that is traced anew begins with nothing. Gradients of it are not defined.
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
    """An optax transformation whose updates are made of the gradients of all ranks.

    Args:
        transformation: an ``optax.GradientTransformation``.
        options: of :func:`allreduce_gradients`.

    Where ``update`` is given the parameters (its third argument), ranks compare them after the first update and every
    1,000 updates (``RINGCOMM_REPLICA_CHECK``): a warning names those that differ. :func:`check_replicas` compares them
    at any time.
    """

    resolved(options.get("compression"))  # refuses what there is not

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
    """The root's object, on every rank."""
    return objects.broadcast_object(obj, root_rank, name, process_set, "jax")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Every rank's object, in the order of the ranks."""
    return objects.allgather_object(obj, name, process_set, "jax")
