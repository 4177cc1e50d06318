"""Decides which gradients receive their results in memory that the script has too.

`Slot.deliver` writes a result there, or replaces ``.grad``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch

from ringcomm._src.torch.slot import Slot


def release_overlapping(slots: Iterable[Slot]) -> None:
    """Releases views that overlap another gradient, as those that autograd makes of a sum."""
    ranges = []
    for slot in slots:
        gradient = slot.parameter.grad
        if gradient is not None and gradient.layout is torch.strided and gradient.numel() > 0:
            last = sum((count - 1) * stride for count, stride in zip(gradient.shape, gradient.stride(), strict=True))
            begin = gradient.data_ptr()
            ranges.append((begin, begin + (last + 1) * gradient.element_size(), slot))
    furthest, owner = 0, None
    for begin, end, slot in sorted(ranges, key=operator.itemgetter(0)):
        if owner is not None and begin < furthest:
            owner.release_view()
            slot.release_view()
        if end > furthest:
            furthest, owner = end, slot
