"""Gradient tapes whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.base.ops import Average
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow.compression import Compression
from ringcomm._src.tensorflow.reduction import GradientReduction


class _DistributedGradientTape(tf.GradientTape):
    """What is added to a tape's class."""

    _reduction: GradientReduction
    _base: type[tf.GradientTape]

    def register_local_source(self, source: Any) -> None:
        """The gradient of this variable stays on its rank (divided by the ranks, unless scale_local_gradients is
        False)."""
        self._reduction.keep_local(source)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the tape's own, and then over all ranks."""
        kwargs.pop("use_generic_names", None)  # Horovod's: names here never are the tensors'
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
    """A tape that holds what ``gradtape`` has recorded, and whose ``gradient()`` reduces over all ranks.

    Args:
        gradtape: a ``tf.GradientTape``.
        device_dense, device_sparse: accepted because Horovod has them; not needed.
        compression: what travels between hosts: ``Compression.none``, ``.fp16``, ``.bf16``, or one of your own.
        sparse_as_dense: ``tf.IndexedSlices`` become dense and are reduced; else their values and indices are gathered.
        op: ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        gradient_predivide_factor: with ``Average``, divides by this before the sum, and by size / this after it.
        num_groups, groups: reduce in so many operations, or these lists of variables together; None: all together.
        process_set: the ranks to reduce over; on others nothing is reduced.
        scale_local_gradients: gradients of local sources (`register_local_source`) are divided by the ranks.
        algorithm: of the all-reduces; None: chosen.

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
    """:func:`DistributedGradientTape`, but for the variables of ``local_layers`` (a Keras layer or several), whose
    gradients stay on their rank."""
    how = compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, *how, scale_local_gradients)
    tape._reduction.keep_layers_local(local_layers)
    return tape
