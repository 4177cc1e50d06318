"""Operations of ringcomm.torch on a device: results, order of streams, early frees."""

import torch
from on_device import DEVICE, busy, capturing, cuda, ignoring, only_a_stand_in, settle, there, waits

import ringcomm.torch as hvd
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.torch.functions import broadcast_optimizer_state


def everywhere(value):
    """Returns `value(rank)` of every rank."""
    return [value(rank) for rank in range(hvd.size())]


def same(got, expected):
    assert got.device.type == DEVICE
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


def case_allreduce():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        x = torch.arange(1000).remainder(7).to(dtype) + hvd.rank()
        total = sum(everywhere(lambda rank, dtype=dtype: torch.arange(1000).remainder(7).to(dtype) + rank))
        same(hvd.allreduce(x.to(DEVICE), op=hvd.Sum), total)
        mine = x.to(DEVICE)
        assert hvd.allreduce_(mine, op=hvd.Sum) is mine
        same(mine, total)
    x = torch.full((4, 3), hvd.rank() + 1.0).t()
    mine = x.to(DEVICE)
    assert not mine.is_contiguous()
    same(hvd.allreduce_(mine, op=hvd.Max), torch.full((3, 4), float(hvd.size())))
    same(hvd.allreduce(there(), op=hvd.Sum), torch.empty(0))
    same(hvd.allreduce(there(2.0, 4.0), prescale_factor=0.5, op=hvd.Sum), torch.tensor([1.0, 2.0]) * hvd.size())
    big = torch.randn(700_000, generator=torch.Generator().manual_seed(hvd.rank())).to(DEVICE)
    same(hvd.allreduce(big, op=hvd.Sum, name="big"), hvd.allreduce(big.cpu(), op=hvd.Sum, name="big of the host"))
    same(hvd.allreduce(there(0.1, 1000.0), compression=hvd.Compression.fp16), torch.tensor([0.1, 1000.0]))


def case_groups_of_both_memories():
    size, ones = hvd.size(), torch.ones(5)
    given = [ones.to(DEVICE), ones * 2, ones.to(DEVICE) * 3, torch.arange(3), torch.arange(3).to(DEVICE)]
    results = hvd.grouped_allreduce(given, op=hvd.Sum)
    for one, result in zip(given, results, strict=True):
        assert result.device == one.device
        torch.testing.assert_close(result.cpu(), one.cpu() * size)
    gathered = hvd.grouped_allgather([ones.to(DEVICE), ones])
    assert [one.device.type for one in gathered] == [DEVICE, "cpu"]
    assert all(one.tolist() == [1.0] * 5 * size for one in gathered)
    parts = hvd.grouped_reducescatter([torch.ones(2 * size, 2, device=DEVICE), torch.ones(size)], op=hvd.Sum)
    assert parts[0].tolist() == [[size] * 2] * 2 and parts[1].tolist() == [size]


def case_what_is_moved():
    rank, size = hvd.rank(), hvd.size()
    gathered = hvd.allgather(torch.full((rank + 1, 2), rank, dtype=torch.int32, device=DEVICE))
    same(gathered, torch.cat(everywhere(lambda r: torch.full((r + 1, 2), r, dtype=torch.int32))))
    same(hvd.broadcast(there(float(rank)), size - 1), torch.tensor([size - 1.0]))
    mine = there(float(rank))
    hvd.broadcast_(mine, 0)
    same(mine, torch.tensor([0.0]))
    same(hvd.alltoall(torch.arange(size).to(DEVICE) + 10 * rank), torch.arange(size) * 10 + rank)
    splits = torch.arange(size, dtype=torch.int64).to(DEVICE)
    received, rows = hvd.alltoall(torch.full((int(splits.sum()),), rank).to(DEVICE), splits=splits)
    same(received, torch.cat(everywhere(lambda r: torch.full((rank,), r))))
    assert rows.tolist() == [rank] * size
    parts = hvd.reducescatter(torch.ones(size + 1, 3, device=DEVICE), op=hvd.Sum)
    same(parts, torch.full((2 if rank == 0 else 1, 3), float(size)))


def _gradients(device):
    x = (torch.arange(6.0).reshape(3, 2) + hvd.rank()).to(device).requires_grad_()
    out = hvd.allreduce(x, op=hvd.Sum, name="a").sum() + (hvd.allgather(x * 2, name="b") ** 2).sum()
    out = out + (hvd.broadcast(x, 0, name="c") * 3).sum() + hvd.reducescatter(x * x, op=hvd.Sum, name="d").sum()
    out = out + hvd.alltoall(x, splits=[3] + [0] * (hvd.size() - 1), name="e")[0].pow(3).sum()
    out.backward()
    return x.grad.cpu()


def case_gradients_flow():
    torch.testing.assert_close(_gradients(DEVICE), _gradients("cpu"))


def case_states_and_parameters():
    torch.manual_seed(hvd.rank())
    net = torch.nn.Linear(3, 2).to(DEVICE)
    hvd.broadcast_parameters(net.state_dict(), 0)
    torch.manual_seed(0)
    same(net.weight.detach(), torch.nn.Linear(3, 2).weight.detach())
    optimizer = torch.optim.Adam(net.parameters())
    if hvd.rank() == 0:
        net(there(1.0, 2.0, 3.0)).sum().backward()
        optimizer.step()
    broadcast_optimizer_state(optimizer, 0)
    state = optimizer.state[net.weight]
    assert (state["exp_avg"].device.type, state["step"].device.type) == (DEVICE, "cpu")
    assert state["step"].item() == 1 and bool((state["exp_avg"] != 0).all())
    assert hvd.broadcast_object({"x": 1}, 0) == {"x": 1}


def case_sync_batch_norm():
    def trained(device):
        torch.manual_seed(0)
        net = hvd.SyncBatchNorm(3).to(device)
        x = (torch.randn(4, 3, 2, 2) + hvd.rank()).to(device).requires_grad_()
        (net(x) ** 3).sum().backward()
        return x.grad.cpu(), net.running_var.cpu(), net.weight.grad.cpu()

    for mine, theirs in zip(trained(DEVICE), trained("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs)


# ---- streams and memory ----------------------------------------------------------------------------------------------
def _reduced_on_a_side_stream(count=5000):
    """Sums an array that is written late on one stream, and uses the result on another."""
    side, other = cuda.Stream(), cuda.Stream()
    x = torch.zeros(count, device=DEVICE)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        busy(side, 5)
        x.add_(hvd.rank() + 1)
        handle = hvd.allreduce_async_(x, op=hvd.Sum, name="side", postscale_factor=2.0)
    with cuda.stream(other):
        busy(other, 5)
        result = hvd.synchronize(handle)
        return (result * 1).cpu()


def _expected():
    return 2.0 * sum(everywhere(lambda rank: rank + 1))


def case_order_of_streams():
    for _ in range(3):
        assert bool((_reduced_on_a_side_stream() == _expected()).all())


@only_a_stand_in
def case_a_forgotten_wait_shows():
    """Omits waits in ringcomm's calls, but not in torch's: the results must be wrong."""
    for calls in ("cuStreamWaitEvent:*", "cuEventRecord:*"):
        with ignoring(calls):
            seen = [bool((_reduced_on_a_side_stream(200_000) == _expected()).all()) for _ in range(3)]
            cuda.synchronize()
        hvd.barrier()
        missed = hvd.allreduce(torch.tensor(not all(seen), dtype=torch.int32), op=hvd.Sum)
        assert missed.item() > 0, calls


def case_the_host_does_not_wait():
    x, before = torch.ones(100, device=DEVICE), waits()
    handles = [hvd.allreduce_async(x, op=hvd.Sum), hvd.allgather_async(x), hvd.alltoall_async(x[: hvd.size()])]
    results = [hvd.synchronize(handle) for handle in handles]
    assert waits() == before
    assert results[0].tolist() == [hvd.size()] * 100 and results[1].sum().item() == 100 * hvd.size()


def case_memory_that_goes_early():
    """Drops tensors of handles before and after their end, without waits.

    The tensors of another handle are dropped after a wait on another stream. No operation may write
    to the memory of dropped tensors once other tensors use it.
    """
    other, count, before = cuda.Stream(), 200_000, cuda.memory_allocated()
    for turn in range(8):
        x = torch.full((count,), 1.0, device=DEVICE)
        handle = hvd.allreduce_async_(x, op=hvd.Sum, name=f"early {turn}")
        if turn % 4 == 1:
            while not hvd.poll(handle):
                pass
        elif turn % 4 == 2:
            with cuda.stream(other):
                hvd.synchronize(handle)
        elif turn % 4 == 3:
            assert bool((hvd.synchronize(handle) == hvd.size()).all())
        del x, handle
        others = [torch.full((count,), -1.0, device=DEVICE) for _ in range(2)]  # tensors of equal size
        hvd.barrier()
        settle()
        assert all(bool((one == -1).all()) for one in others)
    del others
    hvd.allreduce(torch.ones(1))  # releases finished operations
    assert cuda.memory_allocated() < before + 6 * 4 * count


def case_capture_is_refused():
    x = torch.ones(3, device=DEVICE)
    with capturing():
        try:
            hvd.allreduce(x)
        except UnsupportedError as error:
            assert "CUDA graph" in str(error)
        else:
            raise AssertionError("not refused")
    same(hvd.allreduce(x), torch.ones(3))


def case_one_array_in_two_memories():
    """Passes arrays of different memory locations to one operation: every rank gets an error."""
    if hvd.size() == 1:
        return
    try:
        hvd.allreduce(torch.ones(3, device=DEVICE if hvd.rank() == 0 else "cpu"), name="two memories")
    except hvd.HorovodInternalError as error:
        assert "two memories" in str(error)
    else:
        raise AssertionError("not refused")
