"""Reduction of lists of torch gradients over all ranks, for Keras on the torch backend.

The reduction works in place: backward has allocated the gradients for this step only.
"""

from __future__ import annotations

from typing import Any

import torch

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression.compression import parts_of, residual_array
from ringcomm._src.core import _core
from ringcomm._src.named.error_feedback import Floats, ResidualStore
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.replicas import digests_of, values_of
from ringcomm._src.training import gradient_lists
from ringcomm._src.training.gradient_lists import names_of
from ringcomm._src.training.replicas import CountedCheck


class GradientResidual(ResidualStore):
    """Residual of one gradient, and the number of its reductions."""

    def __init__(self, name: str, count: int, how: Reduction) -> None:
        super().__init__(how.process_set, [name], how.op, how.postscale)
        self.feedback = _core.Feedback([count])
        self.runs = 0
        self.register()

    def residual(self, index: int) -> Floats:
        return residual_array(self.feedback, 0)

    def set_residual(self, index: int, values: Floats) -> None:
        residual_array(self.feedback, 0)[:] = values


class GradientReduction(gradient_lists.GradientReduction):
    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        wire, compressor = parts_of(compression)
        algorithm = self.reduction_for(wire)[1]
        how = Reduction(self.op, *self.factors(), self.process_set, algorithm, wire)
        pairs = [compressor.compress(gradient.detach()) for gradient in gradients]
        reductions = [self._with_residual(how, name, sent) for name, (sent, _) in zip(names, pairs, strict=True)]
        requests = [
            operations.allreduce_request(reduction, sent, True)
            for reduction, (sent, _) in zip(reductions, pairs, strict=True)
        ]
        reduced = how.submit_group(requests, names).wait()
        return [compressor.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs, strict=True)]

    def compare_replicas(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        run = check.due()
        if run:
            values = [variable.value.detach() for variable in variables]
            check.compare(run, names_of(variables), digests_of(values), lambda index: values_of(values[index]))
        return gradients

    def empty_gradient(self, variable: Any) -> Any:
        return None if variable is None else torch.zeros(0, dtype=variable.value.dtype)

    def _with_residual(self, how: Reduction, name: str, gradient: torch.Tensor) -> Reduction:
        """Returns the reduction with the gradient's residual; in warm-up steps, with their format."""
        wire = how.wire
        if not isinstance(wire, WireFormat):
            return how
        kept = self.kept.get(name)
        if kept is None or kept.feedback.count() != gradient.numel():
            kept = self.kept[name] = GradientResidual(name, gradient.numel(), how)
        kept.runs += 1
        if kept.runs <= wire.warmup_steps:
            how = how._replace(wire=wire.warmup_format())
        return how._replace(feedback=kept.feedback) if wire.error_feedback else how
