"""The operations of ``ringcomm.torch``: as on arrays, but that gradients flow through those that give new tensors, and
that compressors may be written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ringcomm.reductions import Reduction
from ringcomm.torch import asynchronous, autograd
from ringcomm.torch.compression import parts_of


class Operations(asynchronous.Operations):
    """In place and in the background autograd sees nothing of them."""

    run_allreduce = staticmethod(autograd.Allreduce.apply)
    run_reducescatter = staticmethod(autograd.Reducescatter.apply)
    run_allgather = staticmethod(autograd.Allgather.apply)
    run_broadcast = staticmethod(autograd.Broadcast.apply)
    run_alltoall = staticmethod(autograd.Alltoall.apply)

    def _compressed(
        self,
        run: Callable[..., Any],
        grouped: bool,
        tensors: Sequence[Tensor],
        name: str | None,
        compression: Any,
        how: Reduction,
    ) -> Any:
        wire, compressor = parts_of(compression)
        pairs = [compressor.compress(tensor) for tensor in tensors]
        reduced = run(grouped, name, how._replace(wire=wire), *(sent for sent, _ in pairs))
        contexts = [context for _, context in pairs]
        if not grouped:
            return compressor.decompress(reduced, contexts[0])
        return [compressor.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


operations = Operations(asynchronous.check)
