"""Lists of torch's gradients, reduced over all ranks: Keras' on that backend. In place, for backward has made them and
nobody else has them."""

from __future__ import annotations

from typing import Any

from ringcomm import gradient_lists
from ringcomm.compression import parts_of
from ringcomm.reductions import Reduction
from ringcomm.torch.asynchronous import operations


class GradientReduction(gradient_lists.GradientReduction):
    keeps = False

    def reduce_dense(self, gradients: list[Any], names: list[str], compression: Any) -> list[Any]:
        wire, compressor = parts_of(compression)
        how = Reduction(self.op, *self.factors(), self.process_set, self.algorithm, wire)
        pairs = [compressor.compress(one.detach()) for one in gradients]
        requests = [operations.allreduce_request(how, sent, True) for sent, _ in pairs]
        reduced = how.submit_group(requests, names).wait()
        return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]
