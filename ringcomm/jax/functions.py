"""The operations of ``ringcomm.jax``: gradients flow through them, as Horovod's do through PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ringcomm import objects
from ringcomm.compression import NoneCompressor, parts_of, resolved
from ringcomm.jax import operations, replicas
from ringcomm.jax.reduction import GradientReduction
from ringcomm.ops import Average, Sum, chosen_op, core_op
from ringcomm.process_sets import ProcessSet, global_process_set
from ringcomm.sites import Reduce
from ringcomm.wire_formats import WireFormat

AVERAGE = Reduce(Average)


def _with_gradient(
    forward: Callable[[Sequence[Any]], list[Any]],
    backward: Callable[[Sequence[Any]], list[Any]],
    arrays: Sequence[Any],
) -> list[Any]:
    @jax.custom_vjp
    def run(*given: Any) -> Any:
        return tuple(forward(given))

    run.defvjp(lambda *given: (tuple(forward(given)), None), lambda _, gradients: tuple(backward(gradients)))
    return list(run(*(jnp.asarray(one) for one in arrays)))


def _back(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


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
    reduced = _with_gradient(
        lambda given: operations.allreduce(given, name, grouped, how, process_set, algorithm),
        lambda given: operations.allreduce(given, _back(name), grouped, how, process_set, algorithm),
        [sent for sent, _ in pairs],
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
    """The reduction of every rank's ``array``, on every rank of ``process_set``. Also under ``jax.jit``.

    Args:
        array: of the same dtype and shape on every rank.
        op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        name: pairs the operations of the ranks; None: where in the program it stands, and outside of ``jit`` the order.
        prescale_factor, postscale_factor: multiply every rank's values before, and the result after.
        compression: what wider floating data travels as between hosts.
        process_set: the ranks that take part.
        algorithm: what runs; None: chosen.

    Raises:
        MismatchError: on every rank, if dtypes, shapes or ops differ; out of a compiled function it is JAX's
            XlaRuntimeError, whose text begins with the exception's name.
        ValueError: under ``jax.vmap`` or ``jax.pmap``.
    """
    how = op, name, prescale_factor, postscale_factor, compression, process_set, algorithm
    return grouped_allreduce([array], *how, grouped=False)[0]


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Every rank's ``array``, one after the other along the first dimension, which under ``jax.jit`` must be the same
    on all ranks. Its gradient is averaged; each rank takes the rows that it gave."""
    given = jnp.asarray(array)
    rows = given.shape[0] if given.shape else 1

    def backward(gradients: Sequence[Any]) -> list[Any]:
        mean = operations.allreduce(gradients, _back(name), False, AVERAGE, process_set)[0]
        before = rows * process_set.rank()
        return [mean[before : before + rows].reshape(given.shape)]

    return _with_gradient(
        lambda one: operations.allgather(one, name, False, process_set, algorithm), backward, [given]
    )[0]


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """The root's array, on every rank. Its gradient is averaged and goes to the root; elsewhere it is zero."""

    def backward(gradients: Sequence[Any]) -> list[Any]:
        mean = operations.allreduce(gradients, _back(name), False, AVERAGE, process_set)[0]
        here = process_set.rank() == process_set.ranks.index(root_rank)
        return [mean if here else jnp.zeros_like(mean)]

    return _with_gradient(
        lambda one: operations.broadcast(one, root_rank, name, False, process_set, algorithm), backward, [array]
    )[0]


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
    rows = jnp.shape(array)[0]

    def backward(gradients: Sequence[Any]) -> list[Any]:
        size = process_set.size()
        factor = prescale_factor * postscale_factor * (size if how.op == Sum else 1)
        (mine,) = gradients
        each = -(-rows // size)  # shapes are the same on all ranks under jit: the shorter parts are filled up
        padded = jnp.pad(mine * factor, [(0, each - mine.shape[0]), *[(0, 0)] * (mine.ndim - 1)])
        whole = operations.allgather([padded], _back(name), False, process_set)[0]
        lengths = [rows // size + (rank < rows % size) for rank in range(size)]
        return [jnp.concatenate([whole[each * rank : each * rank + n] for rank, n in enumerate(lengths)])]

    return _with_gradient(
        lambda one: operations.reducescatter(one, name, False, how, process_set, algorithm), backward, [array]
    )[0]


def alltoall(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Sends part q of ``array`` (even parts, along the first dimension) to rank q of the set; gives the parts received.
    The gradient's rows go back where they came from."""
    return _with_gradient(
        lambda one: [operations.alltoall(one[0], name, process_set, algorithm)],
        lambda one: [operations.alltoall(one[0], _back(name), process_set, algorithm)],
        [array],
    )[0]


# ---- pytrees ---------------------------------------------------------------------------------------------------------
def broadcast_parameters(parameters: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """A pytree with the root's values, all in one operation: parameters, optimizer states. What is no array of numbers
    must be the same on all ranks."""
    leaves, tree = jax.tree.flatten(parameters)
    given = [jnp.asarray(one) for one in leaves]
    names = [f"parameters.{i}" for i in range(len(given))]
    return jax.tree.unflatten(tree, operations.broadcast(given, root_rank, names, True, process_set))


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

    return transformation._replace(update=update)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object, on every rank."""
    return objects.broadcast_object(obj, root_rank, name, process_set, "jax")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Every rank's object, in the order of the ranks."""
    return objects.allgather_object(obj, name, process_set, "jax")
