"""Point-to-point messages of a process group of torch.distributed."""

from __future__ import annotations

import torch

from ringcomm._src.base.errors import MismatchError
from ringcomm._src.communicator.groups import MESSAGE_TAGS
from ringcomm._src.torch.distributed.lists import FlatList, require_one
from ringcomm._src.torch.distributed.runs import GroupCalls
from ringcomm._src.torch.distributed.work import Message, Work

Tensors = list[torch.Tensor]

TAGS = MESSAGE_TAGS // 2  # tags of programs; the other half is for internal messages


def require_message(tag: int) -> None:
    """Raises ValueError for a tag outside the range of messages."""
    if not 0 <= tag < TAGS:
        raise ValueError(f"tag {tag}: messages of a process group have tags 0 to {TAGS - 1}")


class GroupMessages(GroupCalls):
    """Sends and receives of :class:`ringcomm.torch.distributed.ProcessGroup`."""

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        """Sends a tensor to a rank of the group."""
        require_message(tag)
        require_one("send", "the input", tensors)
        tensor = tensors[0].contiguous()
        self._meet([tensor])
        return self._work([Message(self._group.isend(tensor, dst, tag))], tensors, None, None)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        """Receives from a rank of the group. MismatchError if the message and the tensor differ in length."""
        return self._receive(tensors, src, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receives from any rank; ``work.source_rank()`` returns which."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Tensors, source: int | None, tag: int) -> Work:
        require_message(tag)
        require_one("recv", "the output", tensors)
        whole = FlatList.each(tensors)
        self._written(tensors)
        request = self._group.irecv(whole.flats[0], source, tag)
        expected = tensors[0].numel() * tensors[0].element_size()

        def finish() -> int:
            status = request.wait()
            sender = self._group.ranks.index(status.source)
            if status.nbytes != expected:
                raise MismatchError(
                    f"process group {self._called}: rank {sender} sent {status.nbytes} bytes to rank {self.rank()}, "
                    f"which receives {expected} (tag {tag}): send and receive tensors of one dtype and size",
                    (sender, self.rank()),
                )
            whole.write_back()
            return sender

        return self._work([Message(request)], tensors, finish, None)
