"""Reduction of lists of JAX's gradients over all ranks.

Keras' optimizers use it on the JAX backend; `functions.allreduce_gradients` uses it for wire
formats.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.jax import operations, replicas
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.training import gradient_lists
from ringcomm._src.training.gradient_lists import names_of
from ringcomm._src.training.replicas import CountedCheck


class GradientReduction(gradient_lists.GradientReduction):
    def allreduce(self, gradients: list[Any], names: list[str], reduction: Reduce, algorithm: str | None) -> list[Any]:
        return operations.allreduce(gradients, names, True, reduction, self.process_set, algorithm)

    def compare_replicas(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        replicas.check_step(check, gradients, names_of(variables), [variable.value for variable in variables])
        return gradients
