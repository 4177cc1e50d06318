"""Lists of tensors seen as one row of elements, without a copy if they are adjacent in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ringcomm._src.torch.kind import used_here

Tensor = torch.Tensor


def rows_of(tensors: Sequence[Tensor]) -> list[int]:
    """Returns the number of elements of each tensor."""
    return [tensor.numel() for tensor in tensors]


def require_single(call: str, what: str, given: Sequence[Tensor]) -> None:
    """Raises ValueError unless `given` is a list of one tensor.

    Gloo reduces several tensors of one call together; NCCL refuses them. Both have coalesced calls
    for tensors that are reduced separately.
    """
    if len(given) != 1:
        raise ValueError(f"{call}: {what} must be a list of one tensor, not of {len(given)}")


def require_parts(call: str, what: str, given: Sequence[Sequence[Tensor]], count: int, size: int) -> None:
    """Raises ValueError unless `given` is `count` lists of `size` tensors, one for each rank."""
    if len(given) != count or count == 0:
        raise ValueError(f"{call}: {what} must be {max(count, 1)} list(s) of {size} tensors, not {len(given)} lists")
    for each in given:
        if len(each) != size:
            raise ValueError(
                f"{call}: each list of {what} must have a tensor for each of {size} ranks, not {len(each)}"
            )


class FlatList:
    """The tensors of a call as one-dimensional ``flats``: views if contiguous, else copies.

    ``write_back`` copies the results to the tensors.
    """

    def __init__(self, tensors: Sequence[Tensor], flats: list[Tensor], copied: bool) -> None:
        self._tensors, self.flats, self._copied = tensors, flats, copied

    @property
    def flat(self) -> Tensor:
        """The single flat tensor of a list that :meth:`FlatList.of` made."""
        return self.flats[0]

    @classmethod
    def each(cls, tensors: Sequence[Tensor]) -> FlatList:
        """Makes a flat tensor for each tensor. A call writes its results to them."""
        flats = [tensor.detach().contiguous().view(-1) for tensor in tensors]
        moved = any(flat.data_ptr() != tensor.data_ptr() for flat, tensor in zip(flats, tensors, strict=True))
        return cls(tensors, flats, moved)

    @classmethod
    def of(cls, tensors: Sequence[Tensor], read: bool) -> FlatList:
        """Makes one flat tensor of all tensors, which have one dtype. `read`: the call reads it."""
        if in_a_row(tensors):
            first = tensors[0].detach()
            total = sum(tensor.numel() for tensor in tensors)
            return cls(tensors, [first.as_strided((total,), (1,))], False)
        flats = [tensor.detach().contiguous().view(-1) for tensor in tensors]
        if read:
            return cls(tensors, [torch.cat(flats)], True)
        return cls(tensors, [flats[0].new_empty(sum(flat.numel() for flat in flats))], True)

    def write_back(self) -> None:
        """Copies the results to the tensors if the flat tensors are copies."""
        if not self._copied:
            return
        parts = self.flats
        if len(self.flats) == 1 and len(self._tensors) > 1:
            parts = list(self.flats[0].split(rows_of(self._tensors)))
        with torch.no_grad():
            for tensor, part in zip(self._tensors, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))
                used_here(part)


def in_a_row(tensors: Sequence[Tensor]) -> bool:
    """Returns True if the tensors are adjacent in one storage."""
    first = tensors[0]
    storage, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != end or tensor.dtype != first.dtype:
            return False
        if tensor.untyped_storage().data_ptr() != storage:
            return False
        end += tensor.numel() * tensor.element_size()
    return True
