"""Gradient tapes that reduce gradients over all ranks, for ``ringcomm.tensorflow``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.base.ops import Average
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow.compression import Compression
from ringcomm._src.tensorflow.reduction import GradientReduction


class _DistributedGradientTape(tf.GradientTape):
    """The members that are added to a tape's class."""

    _reduction: GradientReduction
    _base: type[tf.GradientTape]

    def register_local_source(self, source: Any) -> None:
        """Excludes the gradient of this variable from the reduction.

        This gradient is divided by the number of ranks, unless scale_local_gradients is False.
        """
        self._reduction.keep_local(source)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Computes gradients as the tape's class does, then reduces them over all ranks."""
        kwargs.pop("use_generic_names", None)  # argument of Horovod; names never depend on tensors here
        gradients = self._base.gradient(self, target, sources, output_gradients, *args, **kwargs)
        reduced = self._reduction(tf.nest.flatten(gradients), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(gradients, reduced)


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    algorithm: str | None = None,
) -> Any:
    """Returns a tape with a method ``gradient()`` that reduces gradients over all ranks.

    Gradients that are None stay None; they must be None on all ranks.

    Parameters
    ----------
    gradtape : tf.GradientTape
        The tape that has recorded the forward pass.
    device_dense, device_sparse
        Accepted because Horovod has them; not used.
    compression : compressor | str
        Wire format between hosts: ``Compression.none``, ``.fp16``, ``.bf16``, or a custom
        compressor.
    sparse_as_dense : bool
        Convert ``tf.IndexedSlices`` to dense and reduce them; else gather their values and indices.
    op : Op
        ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
    gradient_predivide_factor : float
        With ``Average``, gradients are divided by this factor before the sum, and their sum by
        size / factor.
    num_groups : int
        Number of operations to split the gradients into; 0: one operation.
    groups : int | list[list[tf.Variable]] | None
        Lists of variables, each reduced in one operation; None: all variables in one.
    process_set : ProcessSet
        The ranks to reduce over; other ranks reduce nothing.
    scale_local_gradients : bool
        Divide gradients of local sources (`register_local_source`) by the number of ranks.
    algorithm : str | None
        Algorithm of the all-reduces; None: chosen automatically.

    Returns
    -------
    tf.GradientTape
        A tape with the records of ``gradtape`` and the method ``register_local_source``.

    Raises
    ------
    ValueError
        Arguments contradict each other.
    MismatchError
        ``gradient()`` raises it on every rank, if ranks have different gradients.

    Examples
    --------
    >>> weight = tf.Variable(1.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = weight * float(hvd.rank())
    >>> tape = hvd.DistributedGradientTape(tape)
    >>> float(tape.gradient(loss, weight))             # mean of 0 and 1
    0.5
    """
    options = op, compression, sparse_as_dense, gradient_predivide_factor, num_groups, groups, process_set
    reduction = GradientReduction("tape", *options, scale_local_gradients, algorithm)
    base = type(gradtape)
    namespace = {k: v for k, v in vars(_DistributedGradientTape).items() if k not in ("__dict__", "__weakref__")}
    wrapped: Any = object.__new__(type(base.__name__, (base,), namespace | {"_base": base}))
    wrapped.__dict__.update(vars(gradtape))
    wrapped._reduction = reduction
    return wrapped


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a :func:`DistributedGradientTape` that does not reduce gradients of ``local_layers``.

    Parameters
    ----------
    gradtape : tf.GradientTape
        The tape; this and the other arguments are as for :func:`DistributedGradientTape`.
    local_layers : keras.layers.Layer | list[keras.layers.Layer] | None
        Built layers. Their gradients are not reduced.

    Returns
    -------
    tf.GradientTape
        A tape with the records of ``gradtape``.

    Examples
    --------
    >>> layer = tf.keras.layers.Dense(1, use_bias=False)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(layer(tf.fill([1, 1], 2.0 * hvd.rank())))
    >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    >>> gradients = tape.gradient(loss, layer.trainable_variables)
    >>> gradients[0].numpy().tolist() == [[hvd.rank()]]    # the local gradient, divided by size
    True
    """
    options = compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, *options, scale_local_gradients)
    tape._reduction.keep_layers_local(local_layers)
    return tape
