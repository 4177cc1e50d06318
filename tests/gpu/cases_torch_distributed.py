"""Cases for the backend of torch.distributed with tensors on a device."""

import torch
import torch.distributed as dist
from on_device import DEVICE, busy, cuda, there

import ringcomm.torch as hvd


def start():
    import ringcomm.torch.distributed  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("ringcomm")


def _function(name, before):
    """Returns a function by its name in this version of torch."""
    return getattr(dist, name, None) or getattr(dist, before)


def case_collectives():
    start()
    rank, size = hvd.rank(), hvd.size()
    x = there(rank + 1.0, 2.0)
    dist.all_reduce(x)
    assert x.tolist() == [sum(range(1, size + 1)), 2.0 * size]
    parts = [torch.empty(2, device=DEVICE) for _ in range(size)]
    dist.all_gather(parts, there(float(rank), 5.0))
    assert [one.tolist() for one in parts] == [[float(r), 5.0] for r in range(size)]
    whole = torch.empty(2 * size, device=DEVICE)
    _function("all_gather_single", "all_gather_into_tensor")(whole, there(float(rank), 5.0))
    assert whole.tolist() == [v for r in range(size) for v in (float(r), 5.0)]
    mine = torch.empty(3, device=DEVICE)
    _function("reduce_scatter_single", "reduce_scatter_tensor")(mine, torch.ones(3 * size, device=DEVICE))
    assert mine.tolist() == [size] * 3
    b = there(float(rank))
    dist.broadcast(b, size - 1)
    assert b.item() == size - 1
    out = torch.empty(size, device=DEVICE)
    dist.all_to_all_single(out, torch.arange(float(size), device=DEVICE) + 10 * rank)
    assert out.tolist() == [10.0 * r + rank for r in range(size)]
    strided = torch.ones(3, 2, device=DEVICE).t()
    dist.all_reduce(strided)
    assert strided.tolist() == [[size] * 3] * 2


def case_streams():
    start()
    side, other = cuda.Stream(), cuda.Stream()
    for turn in range(3):
        x = torch.zeros(3000, device=DEVICE)
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            busy(side, 5)
            x.add_(1)
            work = dist.all_reduce(x, async_op=True)
        with cuda.stream(other):
            busy(other, 5)
            if turn == 1:
                result = work.get_future().wait()[0]
            else:
                work.wait()
                result = x
            assert (result * 1).tolist() == [hvd.size()] * 3000
        x.record_stream(side)
        x.record_stream(other)


def case_messages():
    """Sends late values into strided tensors, from any rank; waits on another stream."""
    start()
    rank, size = hvd.rank(), hvd.size()
    after, before = (rank + 1) % size, (rank - 1) % size
    side = cuda.Stream()
    for turn in range(2):
        x, into = torch.zeros(300, device=DEVICE), torch.zeros(3, 200, device=DEVICE).t()[::2]
        busy(cuda.current_stream(), 5)
        x.add_(rank + turn)
        works = [dist.isend(x, after, tag=turn), dist.irecv(into, before if turn else None, tag=turn)]
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for work in works:
                work.wait()
            assert (into * 1).tolist() == [[before + turn] * 3] * 100
    into = there(0.0)
    both = dist.P2POp(dist.isend, there(float(rank)), after), dist.P2POp(dist.irecv, into, before)
    for work in dist.batch_isend_irecv(list(both)):
        work.wait()
    assert into.item() == before
