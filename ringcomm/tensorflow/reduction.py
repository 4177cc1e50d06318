"""Lists of TensorFlow's gradients, reduced over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm import gradient_lists
from ringcomm.compression import parts_of
from ringcomm.tensorflow import operations
from ringcomm.tensorflow.mpi_ops import sparse_allreduce


class GradientReduction(gradient_lists.GradientReduction):
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        wire, compressor = parts_of(compression)
        pairs = [compressor.compress(tf.convert_to_tensor(one)) for one in gradients]
        how, algorithm = self.how_to(wire)
        sent = [one for one, _ in pairs]
        reduced = operations.allreduce(sent, names, True, how, self.process_set, algorithm)
        return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]

    def gather_sparse(self, gradients: list[Any], names: list[str]) -> list[Any]:
        parts = [f"{name}.{part}" for name in names for part in ("values", "indices")]
        return sparse_allreduce(gradients, self.op, self.factors(), parts, self.process_set)

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, tf.IndexedSlices)

    def as_dense(self, gradient: Any) -> Any:
        return tf.convert_to_tensor(gradient)

    def reference(self, variable: Any) -> Any:
        """Keras' variables hold one of TensorFlow's."""
        inner = getattr(variable, "value", None)
        held = inner if isinstance(inner, tf.Variable) else variable
        return held.ref() if hasattr(held, "ref") else id(held)
