"""Lists of TensorFlow's gradients, reduced over all ranks."""

from __future__ import annotations

import gc
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from ringcomm import gradient_lists
from ringcomm.sites import Reduce
from ringcomm.tensorflow import gradients as differentiable
from ringcomm.tensorflow import operations
from ringcomm.tensorflow.mpi_ops import scaled, sparse_allreduce


class GradientReduction(gradient_lists.GradientReduction):
    def allreduce(self, gradients: list[Any], names: list[str], how: Reduce, algorithm: str | None) -> list[Any]:
        # Without an outer tape the raw operation, which takes the gradients' memory over.
        run = differentiable.allreduce if record.could_possibly_record() else operations.allreduce
        return run(gradients, names, True, how, self.process_set, algorithm)

    def gather_sparse(self, gradients: list[Any], names: list[str]) -> list[Any]:
        parts = [f"{name}.{part}" for name in names for part in ("values", "indices")]
        return sparse_allreduce(gradients, self.op, self.factors(), parts, self.process_set)

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, tf.IndexedSlices)

    def as_dense(self, gradient: Any) -> Any:
        return tf.convert_to_tensor(gradient)

    def nothing_for(self, variable: Any) -> Any:
        return None if variable is None else tf.zeros([0], tf.as_dtype(variable.dtype).base_dtype)

    def scaled(self, gradient: Any, factor: float) -> Any:
        return scaled(gradient, factor)

    def reference(self, variable: Any) -> Any:
        """Keras' variables hold one of TensorFlow's."""
        inner = getattr(variable, "value", None)
        held = inner if isinstance(inner, tf.Variable) else variable
        return held.ref() if hasattr(held, "ref") else id(held)

    @staticmethod
    def is_in_a_graph(variable: Any) -> bool:
        handle, function = variable.value.handle, tf.types.experimental.ConcreteFunction
        traced = (one for one in gc.get_objects() if issubclass(type(one), function))
        return any(captured is handle for one in traced for captured in one.captured_inputs)
