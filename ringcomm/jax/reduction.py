"""Lists of JAX's gradients, reduced over all ranks: Keras' on that backend."""

from __future__ import annotations

from typing import Any

from ringcomm import gradient_lists
from ringcomm.jax import operations
from ringcomm.sites import Reduce


class GradientReduction(gradient_lists.GradientReduction):
    def allreduce(self, gradients: list[Any], names: list[str], how: Reduce, algorithm: str | None) -> list[Any]:
        return operations.allreduce(gradients, names, True, how, self.process_set, algorithm)
