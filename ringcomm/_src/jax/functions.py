"""The operations of ``ringcomm.jax``: collectives on arrays and pytrees, and the optax wrapper.

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


def _reduced(arrays: Sequence[Any], parameters: Reduce, run: Callable[[Sequence[Any], Reduce], list[Any]]) -> list[Any]:
    """Runs the reduction `run` in a differentiable form.

    Derivatives of Max, Min and Product are taken at the scaled values. Adasum's gradient is the
    Adasum of the gradients, as in Horovod.
    """
    if parameters.op == Adasum:
        adasum = jax.custom_vjp(lambda *operands: tuple(run(operands, parameters)))
        adasum.defvjp(
            lambda *operands: (tuple(run(operands, parameters)), None),
            lambda _, gradients: tuple(run(gradients, parameters)),
        )
        return list(adasum(*arrays))
    floating = all(jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays)
    if parameters.op in (Average, Sum) or parameters.pre == parameters.post == 1 or not floating:
        return run(arrays, parameters)
    results = run([array * parameters.pre for array in arrays], parameters._replace(pre=1.0, post=1.0))
    return [result * parameters.post for result in results]


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
    """Reduces several arrays as :func:`allreduce` does, in one operation.

    Parameters
    ----------
    arrays : Sequence[jax.Array]
        These and the other arguments are as for :func:`allreduce`.
    grouped : bool
        Add each array's index to ``name``.

    Returns
    -------
    list[jax.Array]
        The results, in the order of ``arrays``.

    Examples
    --------
    >>> ones, zeros = jax.numpy.ones(2), jax.numpy.zeros(3)
    >>> [y.tolist() for y in hvd.grouped_allreduce([ones, zeros], op=hvd.Sum)]
    [[2.0, 2.0], [0.0, 0.0, 0.0]]
    """
    wire, compressor = parts_of(compression)
    pairs = [compressor.compress(jnp.asarray(array)) for array in arrays]
    parameters = Reduce(chosen_op(op, None), prescale_factor, postscale_factor, wire)
    reduced = _reduced(
        [sent for sent, _ in pairs],
        parameters,
        lambda arrays, parameters: operations.allreduce(arrays, name, grouped, parameters, process_set, algorithm),
    )
    return [compressor.decompress(result, context) for result, (_, context) in zip(reduced, pairs, strict=True)]


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
    """Reduces every rank's ``array``, and returns the result on every rank.

    It runs under ``jax.jit`` and JAX's other transformations. For ``Max`` and ``Min``,
    the ranks that hold the extreme value get equal shares of the gradient, the other ranks zeros.

    Parameters
    ----------
    array : jax.Array | array_like
        Dtype and shape are the same on every rank.
    op : Op | None
        ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together. None:
        unnamed calls belong together by their order; in a compiled function, by their order there.
    prescale_factor, postscale_factor : float
        ``prescale_factor`` multiplies every rank's values before the reduction,
        ``postscale_factor`` the result.
    compression : compressor
        Data format between hosts, for wider floating dtypes.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    jax.Array
        An array of the same dtype and shape.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ. A compiled function raises JAX's
        XlaRuntimeError, with a text that begins with the exception's name.
    ValueError
        The compiled function is for several local devices; or Adasum runs under ``jax.vmap``.
    NotImplementedError
        The reduction has error feedback or is Adasum, and JAX asks for a derivative that is not
        defined.

    Examples
    --------
    >>> x = jax.numpy.full(2, 1.0 + hvd.rank())        # [1, 1] and [2, 2]
    >>> hvd.allreduce(x, name="gradient").tolist()
    [1.5, 1.5]
    >>> jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(x).tolist()
    [3.0, 3.0]
    """
    arguments = op, name, prescale_factor, postscale_factor, compression, process_set, algorithm
    return grouped_allreduce([array], *arguments, grouped=False)[0]


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Concatenates every rank's ``array`` along the first dimension in rank order.

    Each rank's gradient consists of its rows of the averaged gradient.

    Parameters
    ----------
    array : jax.Array | array_like
        All dimensions except the first, and the dtype, are the same on every rank; under
        ``jax.jit`` the first dimension too. A 0-dimensional array counts as one row.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together. None:
        unnamed calls belong together by their order; in a compiled function, by their order there.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    jax.Array
        An array of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, or dimensions other than the first, differ.

    Examples
    --------
    >>> hvd.allgather(jax.numpy.full(1 + hvd.rank(), hvd.rank())).tolist()
    [0, 1, 1]
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

    Parameters
    ----------
    array : jax.Array | array_like
        Dtype and shape are the same on every rank.
    root_rank : int
        Global rank that provides the values.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together. None:
        unnamed calls belong together by their order; in a compiled function, by their order there.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    jax.Array
        An array of the same dtype and shape.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or roots differ.
    ValueError
        The root is not in the process set.

    Examples
    --------
    >>> hvd.broadcast(jax.numpy.array([hvd.rank()]), root_rank=1).tolist()
    [1]
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
    """Reduces every rank's ``array``. Returns part r of the result on rank r of the set.

    The reduction is divided along the first dimension; the first ``array.shape[0] % size`` ranks
    get one more row.

    Parameters
    ----------
    array : jax.Array | array_like
        Has at least one dimension. This and the other arguments are as for :func:`allreduce`.

    Returns
    -------
    jax.Array
        This rank's rows of the reduction, of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ.
    ValueError
        The first argument has no dimensions.
    UnsupportedError
        The op is ``Adasum``.

    Examples
    --------
    >>> hvd.reducescatter(jax.numpy.ones((2, 3)), op=hvd.Sum).tolist()
    [[2.0, 2.0, 2.0]]
    """
    parameters = Reduce(core_op(op), prescale_factor, postscale_factor)
    return _reduced(
        [jnp.asarray(array)],
        parameters,
        lambda arrays, parameters: operations.reducescatter(arrays, name, False, parameters, process_set, algorithm),
    )[0]


def alltoall(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set, algorithm: str | None = None
) -> Any:
    """Sends part q of ``array`` to rank q of the set, and returns the received parts.

    The gradient's rows are sent back to the ranks that sent the array's rows.

    Parameters
    ----------
    array : jax.Array | array_like
        Parts are equal numbers of rows along the first dimension. The dtype and the other
        dimensions are the same on every rank.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together. None:
        unnamed calls belong together by their order; in a compiled function, by their order there.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    jax.Array
        The received parts in rank order.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, or dimensions other than the first, differ.

    Examples
    --------
    >>> rows = hvd.alltoall(jax.numpy.array([0, 1]))   # row q is sent to rank q
    >>> rows.tolist() == [hvd.rank()] * 2
    True
    """
    return operations.alltoall(array, name, process_set, algorithm)


# ---- pytrees ---------------------------------------------------------------------------------------------------------
def broadcast_parameters(parameters: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Returns a pytree with the root's values, in one operation.

    Parameters
    ----------
    parameters : pytree
        Parameters or optimizer states. Leaves that are not arrays of numbers (typed random keys,
        strings) are not broadcast, and must be identical on all ranks.
    root_rank : int
        Global rank that provides the values.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    pytree
        A pytree of the same structure.

    Raises
    ------
    MismatchError
        On every rank, if structures, dtypes or shapes differ.

    Examples
    --------
    >>> parameters = {"weight": jax.numpy.array([hvd.rank()])}
    >>> hvd.broadcast_parameters(parameters, root_rank=1)["weight"].tolist()
    [1]
    """
    leaves, tree = jax.tree.flatten(parameters)
    arrays = {i: jnp.asarray(leaf) for i, leaf in enumerate(leaves) if _is_numeric(leaf)}
    names = [f"parameters.{i}" for i in range(len(arrays))]
    sent = operations.broadcast(list(arrays.values()), root_rank, names, True, process_set)
    values = dict(zip(arrays, sent, strict=True))
    return jax.tree.unflatten(tree, [values.get(i, leaf) for i, leaf in enumerate(leaves)])


def _is_numeric(leaf: Any) -> bool:
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
    """Reduces a pytree of gradients over all ranks, in one operation.

    It also runs under ``jax.jit``. If the wire format has error feedback
    (``Compression.onebit``), each compiled function keeps the residuals in memory and adds them at
    its next call. A function that is traced again begins without residuals. With error feedback,
    the operation is not differentiable.

    Parameters
    ----------
    gradients : pytree
        The same structure, dtypes and shapes on all ranks.
    op : Op
        As for :func:`allreduce`.
    name : str
        Name of the operation.
    compression : compressor | str
        Wire format between hosts (``Compression.fp16``, ``.onebit``), or a custom compressor.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    pytree
        The reduced gradients.

    Raises
    ------
    MismatchError
        On every rank, if structures, dtypes or shapes differ.

    Examples
    --------
    >>> gradients = {"weight": jax.numpy.array([1.0 + hvd.rank()])}
    >>> hvd.allreduce_gradients(gradients)["weight"].tolist()
    [1.5]
    """
    compression = resolved(compression)
    if process_set.size() == 1:
        return gradients
    leaves, tree = jax.tree.flatten(gradients)
    if isinstance(compression, WireFormat):
        reduction = GradientReduction(name, op, compression, process_set=process_set, algorithm=algorithm)
        return jax.tree.unflatten(tree, reduction(leaves, ()))
    arguments = op, name, 1.0, 1.0, compression, process_set, algorithm
    return jax.tree.unflatten(tree, grouped_allreduce(leaves, *arguments))


def distributed(transformation: Any, **options: Any) -> Any:
    """Returns an optax transformation that reduces gradients over all ranks before each update.

    If ``update`` gets the parameters (its third argument), ranks compare them after the first
    update and every 1,000 updates (``RINGCOMM_REPLICA_CHECK``). A warning names the parameters that
    differ. :func:`check_replicas` compares them at any time.

    Parameters
    ----------
    transformation : optax.GradientTransformation
        The transformation of the reduced gradients.
    options : Any
        Options of :func:`allreduce_gradients`.

    Returns
    -------
    optax.GradientTransformation
        A transformation with the same state.

    Raises
    ------
    ValueError
        The compression is unknown.

    Examples
    --------
    >>> import optax
    >>> optimizer = hvd.distributed(optax.sgd(0.5))
    >>> weight = jax.numpy.array([1.0])
    >>> state = optimizer.init(weight)
    >>> updates, state = optimizer.update(jax.numpy.array([1.0 * hvd.rank()]), state, weight)
    >>> optax.apply_updates(weight, updates).tolist()  # mean gradient: 0.5
    [0.75]
    """

    resolved(options.get("compression"))  # raises for an unknown compression

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        replicas.check_step_of_trees(params, updates, options.get("name", "gradients"), options.get("process_set"))
        return transformation.update(allreduce_gradients(updates, **options), state, params, **extra_args)

    if hasattr(transformation, "_replace"):
        return transformation._replace(update=update)
    wrapped = copy.copy(transformation)  # optax.MultiSteps, which has further methods
    wrapped.update = update
    return wrapped


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's object on every rank.

    Parameters
    ----------
    obj : Any
        On the root, any object that can be pickled (with cloudpickle if it is installed); ignored
        on the other ranks.
    root_rank : int
        Global rank that provides the object.
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    Any
        ``obj`` itself on the root, a copy on the other ranks.

    Examples
    --------
    >>> hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None, root_rank=0)
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set, "jax")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns every rank's object, in rank order.

    Parameters
    ----------
    obj : Any
        Any object that can be pickled (with cloudpickle if it is installed).
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    list[Any]
        One object of each rank.

    Examples
    --------
    >>> hvd.allgather_object({"rank": hvd.rank()})
    [{'rank': 0}, {'rank': 1}]
    """
    return objects.allgather_object(obj, name, process_set, "jax")
