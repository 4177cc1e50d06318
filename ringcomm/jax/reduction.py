"""Lists of JAX's gradients, reduced over all ranks: Keras' on that backend."""

from __future__ import annotations

from typing import Any

from ringcomm import gradient_lists
from ringcomm.compression import parts_of
from ringcomm.jax import operations


class GradientReduction(gradient_lists.GradientReduction):
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        wire, compressor = parts_of(compression)
        pairs = [compressor.compress(one) for one in gradients]
        how, algorithm = self.how_to(wire)
        sent = [one for one, _ in pairs]
        reduced = operations.allreduce(sent, names, True, how, self.process_set, algorithm)
        return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]
