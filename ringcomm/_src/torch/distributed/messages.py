"""Point-to-point messages of a process group of torch.distributed."""

from __future__ import annotations

import torch

from ringcomm._src.base.errors import MismatchError
from ringcomm._src.communicator.groups import MESSAGE_TAGS
from ringcomm._src.torch.distributed.lists import FlatList, require_single
from ringcomm._src.torch.distributed.runs import GroupCalls
from ringcomm._src.torch.distributed.work import Message, Work

Tensors = list[torch.Tensor]

TAGS = MESSAGE_TAGS // 2  # tags of programs; the other half is for internal messages


def require_message(tag: int) -> None:
    """Raises ValueError for a tag outside the range of messages."""
    if not 0 <= tag < TAGS:
        raise ValueError(f"tag {tag} is out of range: messages of a process group have tags 0 to {TAGS - 1}")


class GroupMessages(GroupCalls):
    """Sends and receives of :class:`ringcomm.torch.distributed.ProcessGroup`."""

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        """Sends a tensor to a rank of the group."""
        require_message(tag)
        require_single("send", "the input", tensors)
        tensor = tensors[0].contiguous()
        self._share_tensors([tensor])
        return self._work([Message(self._group.isend(tensor, dst, tag))], tensors, None, None)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        """Receives from a rank of the group. ``wait`` raises MismatchError if the sizes differ."""
        return self._receive(tensors, src, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receives from any rank; ``work.source_rank()`` returns the sender."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Tensors, source: int | None, tag: int) -> Work:
        require_message(tag)
        require_single("recv", "the output", tensors)
        flat_list = FlatList.each(tensors)
        self._increment_versions(tensors)
        request = self._group.irecv(flat_list.flats[0], source, tag)
        expected = tensors[0].numel() * tensors[0].element_size()

        def finish() -> int:
            status = request.wait()
            sender = self._group.ranks.index(status.source)
            if status.nbytes != expected:
                raise MismatchError(
                    f"process group {self._label}: rank {sender} sent {status.nbytes} bytes to rank {self.rank()}, "
                    f"which expects {expected} (tag {tag}): send and receive tensors of the same dtype and size",
                    (sender, self.rank()),
                )
            flat_list.write_back()
            return sender

        return self._work([Message(request)], tensors, finish, None)
