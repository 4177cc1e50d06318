"""Lists of torch's gradients, reduced over all ranks: Keras' on that backend. In place, for backward has made them and
nobody else has them."""

from __future__ import annotations

from typing import Any

import torch

from ringcomm import _core, gradient_lists
from ringcomm.compression import parts_of
from ringcomm.reductions import Reduction
from ringcomm.torch.asynchronous import operations
from ringcomm.wire_formats import WireFormat


class Kept:
    """Of one gradient: what encoders have left out of it, and how often it has travelled."""

    def __init__(self, count: int) -> None:
        self.feedback = _core.Feedback([count])
        self.runs = 0


class GradientReduction(gradient_lists.GradientReduction):
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        wire, compressor = parts_of(compression)
        algorithm = self.how_to(wire)[1]
        how = Reduction(self.op, *self.factors(), self.process_set, algorithm, wire)
        pairs = [compressor.compress(one.detach()) for one in gradients]
        ways = [self._keeping(how, name, sent) for name, (sent, _) in zip(names, pairs, strict=True)]
        requests = [operations.allreduce_request(one, sent, True) for one, (sent, _) in zip(ways, pairs, strict=True)]
        reduced = how.submit_group(requests, names).wait()
        return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]

    def _keeping(self, how: Reduction, name: str, gradient: torch.Tensor) -> Reduction:
        """With what is left out of this gradient, and as its first steps travel."""
        wire = how.wire
        if not isinstance(wire, WireFormat):
            return how
        kept = self.kept.get(name)
        if kept is None or kept.feedback.count() != gradient.numel():
            kept = self.kept[name] = Kept(gradient.numel())
        kept.runs += 1
        if kept.runs <= wire.warmup_steps:
            how = how._replace(wire=wire.first())
        return how._replace(feedback=kept.feedback) if wire.error_feedback else how
