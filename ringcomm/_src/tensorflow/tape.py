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

        It is divided by the number of ranks, unless scale_local_gradients is False.
        """
        self._reduction.keep_local(source)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Computes gradients as the tape's class does, then reduces them over all ranks."""
        kwargs.pop("use_generic_names", None)  # argument of Horovod; names never depend on tensors here
        given = self._base.gradient(self, target, sources, output_gradients, *args, **kwargs)
        reduced = self._reduction(tf.nest.flatten(given), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(given, reduced)


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
    """Returns a tape with the records of ``gradtape`` and a ``gradient()`` that reduces over all ranks.

    Args:
        gradtape: a ``tf.GradientTape``.
        device_dense, device_sparse: accepted because Horovod has them; not used.
        compression: wire format between hosts: ``Compression.none``, ``.fp16``, ``.bf16``, or a custom compressor.
        sparse_as_dense: convert ``tf.IndexedSlices`` to dense and reduce them; else gather their values and indices.
        op: ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        gradient_predivide_factor: with ``Average``, divides by this before the sum, and by size / this after it.
        num_groups: number of operations to split the gradients into; 0: one operation.
        groups: lists of variables, each reduced in one operation; None: all variables in one.
        process_set: the ranks to reduce over; other ranks reduce nothing.
        scale_local_gradients: divide gradients of local sources (`register_local_source`) by the number of ranks.
        algorithm: algorithm of the all-reduces; None: the core chooses.

    Gradients that are None stay None; they must be None on all ranks.
    """
    how = op, compression, sparse_as_dense, gradient_predivide_factor, num_groups, groups, process_set
    reduction = GradientReduction("tape", *how, scale_local_gradients, algorithm)
    base = type(gradtape)
    own = {k: v for k, v in vars(_DistributedGradientTape).items() if k not in ("__dict__", "__weakref__")}
    made: Any = object.__new__(type(base.__name__, (base,), own | {"_base": base}))
    made.__dict__.update(vars(gradtape))
    made._reduction = reduction
    return made


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

    ``local_layers`` is a Keras layer or a list of layers.
    """
    how = compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, *how, scale_local_gradients)
    tape._reduction.keep_layers_local(local_layers)
    return tape
