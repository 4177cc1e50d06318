"""torch.distributed on ringcomm's backend, in the default group of all ranks."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

import ringcomm
from ringcomm.torch.distributed import OperationTimeoutError, ProcessGroup, compression_hook, monitored_barrier

Tensor = torch.Tensor
NUMBERS = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
COUNTS = [0, 1, 7, 1000, 70_001]


def me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def drawn(rank: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns small integers, for which sums, and products of a few, are exact."""
    made = torch.Generator().manual_seed(1000 * rank + count)
    return torch.randint(1, 4, (count,), generator=made).to(dtype)


def everybody(count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [drawn(rank, count, dtype) for rank in range(dist.get_world_size())]


def case_reductions_of_every_dtype():
    rank, size = me()
    ops = {
        dist.ReduceOp.SUM: lambda all_: all_.sum(0),
        dist.ReduceOp.PRODUCT: lambda all_: all_.prod(0),
        dist.ReduceOp.MIN: lambda all_: all_.amin(0),
        dist.ReduceOp.MAX: lambda all_: all_.amax(0),
    }
    for dtype in NUMBERS:
        for count in COUNTS:
            for op, reference in ops.items():
                x = drawn(rank, count, dtype)
                dist.all_reduce(x, op)
                expected = reference(torch.stack(everybody(count)).double()).to(dtype)
                assert torch.equal(x, expected), (dtype, count, op)
                assert x.dtype == dtype
    x = drawn(rank, 9, torch.int32)
    dist.all_reduce(x, dist.ReduceOp.BXOR)
    expected = torch.zeros(9, dtype=torch.int32)
    for one in everybody(9, torch.int32):
        expected ^= one
    assert torch.equal(x, expected)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.BAND)
    assert flags.tolist() == [size == 1, True, False]


def case_averages_and_factors():
    rank, size = me()
    x = torch.full((5,), float(rank))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    torch.testing.assert_close(x, torch.full((5,), (size - 1) / 2))
    for factor in (0.5, torch.tensor([0.5])):
        x = torch.full((5,), 2.0)
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        assert torch.equal(x, torch.full((5,), float(size)))
    z = torch.full((3,), complex(rank, 1))
    dist.all_reduce(z)
    assert torch.equal(z, torch.full((3,), complex(size * (size - 1) / 2, size)))


def case_tensors_that_are_not_contiguous():
    rank, size = me()
    whole = torch.full((6, 4), float(rank))
    dist.all_reduce(whole[:, 1])
    total = size * (size - 1) / 2
    assert torch.equal(whole[:, 1], torch.full((6,), total))
    assert torch.equal(whole[:, 0], torch.full((6,), float(rank)))
    dist.broadcast(whole.t(), size - 1)
    columns = torch.zeros(size, 6).t()
    dist.all_gather(list(columns.unbind(1)), torch.full((6,), float(rank)))
    assert torch.equal(columns, torch.arange(float(size)).expand(6, size))


def case_a_repeated_call_follows_its_tensor():
    """In-place calls are cached; a different tensor of the same shape is a different call."""
    _, size = me()
    for value in range(1, 6):
        for shape in ((4,), (2, 2)):
            x, y = torch.full(shape, float(value)), torch.full(shape, 2.0 * value).t()
            dist.all_reduce(x)
            dist.all_reduce(y)
            assert torch.equal(x, torch.full(shape, float(value * size)))
            assert torch.equal(y, torch.full(shape, 2.0 * value * size))


def case_gathers_and_scatters():
    rank, size = me()
    for count in COUNTS:
        x, all_ = drawn(rank, count), everybody(count)
        out = torch.empty(size * count)
        dist.all_gather_into_tensor(out, x)
        assert torch.equal(out, torch.cat(all_))
        lists = [torch.empty(count) for _ in range(size)]
        dist.all_gather(lists, x)
        assert all(map(torch.equal, lists, all_))
        for root in {0, size - 1}:
            lists = [torch.empty(count) for _ in range(size)] if rank == root else None
            dist.gather(x, lists, dst=root)
            assert lists is None or all(map(torch.equal, lists, all_))
            parts = [drawn(r, count) * 2 for r in range(size)] if rank == root else None
            dist.scatter(out := torch.empty(count), parts, src=root)
            assert torch.equal(out, x * 2)
            y = x.clone()
            dist.reduce(y, dst=root)
            assert torch.equal(y, sum(all_) if rank == root else x)
    for count in (1, 100_000):
        outputs = [torch.empty(count + r) for r in range(size)]  # the lengths differ by rank
        outputs[0] = torch.empty(count, 2)[:, rank % 2]
        dist.all_gather(outputs, torch.full((count + rank,), float(rank)))
        assert all(torch.equal(out, torch.full((count + r,), float(r))) for r, out in enumerate(outputs))
    for dtype in (torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.uint8):
        for count in (3, 40_000):
            lists = [torch.empty(count, dtype=dtype) for _ in range(size)]
            dist.all_gather(lists, drawn(rank, count, dtype))
            assert all(map(torch.equal, lists, everybody(count, dtype))), (dtype, count)
    with pytest.raises(ValueError, match="float64"):
        dist.group.WORLD.allgather([[torch.empty(3, dtype=torch.float64)] * size], [torch.ones(3)])


def case_the_forms_without_options():
    """Calls as torch's process groups accept them: tensors, root and op, by position or by name."""
    (rank, size), group = me(), dist.group.WORLD
    last, ranks = size - 1, torch.arange(size * 1.0)
    mine, total = torch.full((1,), float(rank)), ranks.sum(0, keepdim=True)

    def made(call, *given, **named):
        """Returns the first argument after the call, as one tensor."""
        call(*given, **named).wait()
        return given[0] if isinstance(given[0], Tensor) else torch.cat(given[0])

    def parts():
        return [torch.empty(1) for _ in range(size)]

    for named in ({}, {"op": dist.ReduceOp.SUM}, {"op": dist.ReduceOp.SUM, "timeout": timedelta(seconds=60)}):
        assert made(group.allreduce, mine.clone(), **named) == total
        expected = total if rank == last else mine
        assert made(group.reduce, mine.clone(), last, **named) == expected
        assert made(group.reduce_scatter, torch.empty(1), list(ranks.split(1)), **named) == rank * size
    assert made(group.allreduce, [mine.clone()], dist.ReduceOp.MAX) == last
    group.allreduce(tensors=[named_ := mine.clone()], op=dist.ReduceOp.MAX).wait()
    assert named_ == last
    assert made(group.reduce, mine.clone(), root=last, op=dist.ReduceOp.MAX) == (last if rank == last else rank)
    assert made(group.broadcast, mine.clone(), last) == made(group.broadcast, mine.clone(), root=last) == last
    assert torch.equal(made(group.allgather, parts(), mine), ranks)
    assert torch.equal(made(group.allgather, parts(), input_tensor=mine), ranks)
    into = parts() if rank == last else []
    group.gather(into, mine, root=last).wait()
    assert not into or torch.equal(torch.cat(into), ranks)
    given = list(ranks.split(1)) if rank == last else []
    assert made(group.scatter, torch.empty(1), given, last) == rank
    group.barrier(timeout=timedelta(seconds=60)).wait()
    with pytest.raises(TypeError, match="roots"):
        group.broadcast(mine, 0, roots=0)
    with pytest.raises(TypeError, match="root"):
        group.broadcast(mine)


def case_reduce_scatters():
    rank, size = me()
    for count in (0, 1, 1000):
        inputs = [drawn(rank, count) + r for r in range(size)]
        expected = sum(everybody(count)) + size * rank
        out = torch.empty(count)
        dist.reduce_scatter(out, inputs)
        assert torch.equal(out, expected)
        dist.reduce_scatter_tensor(out, torch.cat(inputs))
        assert torch.equal(out, expected)
    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, [torch.full((r + 1,), 1.0) for r in range(size)])
    assert torch.equal(out, torch.full((rank + 1,), float(size)))


def case_all_to_alls():
    rank, size = me()
    x = torch.arange(size * 2.0).reshape(size, 2) + 100 * rank
    out = torch.empty(size, 2)
    dist.all_to_all_single(out, x)
    assert torch.equal(out, torch.stack([torch.tensor([2.0 * rank, 2 * rank + 1]) + 100 * r for r in range(size)]))
    sent = [(rank + r) % 3 for r in range(size)]  # rows; the same number is received
    out = torch.empty(sum(sent), 2)
    dist.all_to_all_single(out, torch.full((sum(sent), 2), float(rank)), sent, sent)
    assert torch.equal(out[:, 0], torch.cat([torch.full((n,), float(r)) for r, n in enumerate(sent)]))
    outs = [torch.empty(r + rank) for r in range(size)]
    dist.all_to_all(outs, [torch.full((rank + r,), float(rank)) for r in range(size)])
    assert all(torch.equal(one, torch.full((r + rank,), float(r))) for r, one in enumerate(outs))
    with pytest.raises(ValueError, match="add up"):
        dist.distributed_c10d._get_default_group().all_to_all_single(out, out, [7] * size, sent)


def case_lists_of_the_wrong_length():
    """Gloo returns the sum of both inputs of one all-reduce, and refuses the other lists."""
    rank, size = me()
    group = dist.group.WORLD
    one, two = torch.ones(2), torch.ones(2)

    def of_root(options: Any) -> Any:
        options.rootRank = rank  # every rank refuses its own call before anything is sent
        return options

    def refused(call: Any, *arguments: Any) -> None:
        with pytest.raises(ValueError, match="list"):
            call(*arguments)

    for wrong in ([], [one, two]):
        refused(group.allreduce, wrong, dist.AllreduceOptions())
        refused(group.reduce, wrong, of_root(dist.ReduceOptions()))
        refused(group.broadcast, wrong, of_root(dist.BroadcastOptions()))
        refused(group.gather, [[one] * size], wrong, of_root(dist.GatherOptions()))
        refused(group.scatter, wrong, [[one] * size], of_root(dist.ScatterOptions()))
        refused(group.send, wrong, rank, 0)
        refused(group.recv, wrong, rank, 0)
    refused(group.allreduce_coalesced, [], dist.AllreduceCoalescedOptions())
    for parts in ([], [[one] * (size + 1)], [[one] * (size - 1)], [[one] * size] * 2):
        refused(group.gather, parts, [one], of_root(dist.GatherOptions()))
        refused(group.scatter, [one], parts, of_root(dist.ScatterOptions()))
        refused(group.allgather, parts, [one])
        refused(group.reduce_scatter, [one], parts)
    refused(group.allgather, [], [])
    refused(group.reduce_scatter, [], [])
    group.allreduce_coalesced([one, two], dist.AllreduceCoalescedOptions()).wait()
    assert one.tolist() == two.tolist() == [size, size]
    group.allreduce(one).wait()
    assert one.tolist() == [size * size] * 2


def case_counts_that_disagree():
    rank, size = me()
    if size == 1:
        return
    group, usual = dist.new_group(), [1] * size
    for other in (None, group):
        for asynchronous in (False, True):
            sent = [2 if rank == 0 and r == 1 else 1 for r in range(size)]
            with pytest.raises(ringcomm.MismatchError, match="rank 0 sends 2 rows to rank 1, which expects 1"):
                x, out = torch.ones(sum(sent), 3), torch.zeros(size, 3)
                work = dist.all_to_all_single(out, x, usual, sent, group=other, async_op=asynchronous)
                work and work.wait()
            assert not out.any()
            with pytest.raises(ringcomm.MismatchError, match="rank 1 sends 4 elements to rank 0, which expects 3"):
                tensors = [torch.ones(4 if rank == 1 and r == 0 else 3) for r in range(size)]
                outs = [torch.zeros(3) for _ in range(size)]
                work = dist.all_to_all(outs, tensors, group=other, async_op=asynchronous)
                work and work.wait()
            for call in (
                lambda: dist.all_gather(
                    [torch.zeros(2 + (rank == r == 1)) for r in range(size)], torch.ones(2 + (rank == 1))
                ),
                lambda: dist.reduce_scatter(
                    torch.zeros(2 + (rank == 1)), [torch.ones(2 + (r == rank == 1)) for r in range(size)]
                ),
                lambda: dist.gather(torch.ones(2 + (rank == 1)), [torch.zeros(2)] * size if rank == 0 else None),
                lambda: dist.scatter(torch.ones(2 + (rank == 1)), [torch.zeros(2)] * size if rank == 0 else None),
            ):
                with pytest.raises(ringcomm.MismatchError):
                    call()
        out = torch.zeros(size, 3)
        dist.all_to_all_single(out, torch.full((size, 3), float(rank)), usual, usual, group=other)
        assert out[:, 0].tolist() == list(range(size))


def case_outputs_count_as_changed():
    """backward refuses a tensor that autograd saved before a collective wrote to it."""
    rank, size = me()

    def one(*shape: int) -> Tensor:
        return torch.ones(*shape)

    def each() -> list[Tensor]:
        return [one(3) for _ in range(size)]

    def message(out: list[Tensor], asynchronous: bool) -> Any:
        if rank > 1 or size == 1:
            return None
        other = dist.isend(one(3), 1 - rank)
        work = dist.irecv(out[0], 1 - rank)
        other.wait()
        return work if asynchronous else work.wait() and None

    here = rank == 0
    calls: dict[str, tuple[list[Tensor], Any]] = {
        "all_gather": (each(), lambda o, a: dist.all_gather(o, one(3), async_op=a)),
        "all_gather_into": ([one(3 * size)], lambda o, a: dist.all_gather_into_tensor(o[0], one(3), async_op=a)),
        "reduce_scatter": ([one(3)], lambda o, a: dist.reduce_scatter(o[0], each(), async_op=a)),
        "reduce_scatter_tensor": ([one(3)], lambda o, a: dist.reduce_scatter_tensor(o[0], one(3 * size), async_op=a)),
        "all_to_all_single": ([one(size)], lambda o, a: dist.all_to_all_single(o[0], one(size), async_op=a)),
        "all_to_all": (each(), lambda o, a: dist.all_to_all(o, each(), async_op=a)),
        "in a row": (list(one(size, 3)), lambda o, a: dist.all_gather(o, one(3), async_op=a)),
        "scatter": ([one(3)], lambda o, a: dist.scatter(o[0], each() if here else None, async_op=a)),
        "gather": (each() if here else [], lambda o, a: dist.gather(one(3), o if here else None, async_op=a)),
        "broadcast": ([] if here else [one(3)], lambda o, a: dist.broadcast(o[0] if o else one(3), 0, async_op=a)),
        "coalesced": ([one(3), one(2)], lambda o, a: dist.all_reduce_coalesced(o, async_op=a)),
        "recv": ([one(3)] if rank < 2 and size > 1 else [], message),
    }
    for name, (outputs, call) in calls.items():
        for asynchronous in (False, True):
            factor = torch.ones((), requires_grad=True)
            saved = [(factor * out).sum() for out in outputs]
            work = call(outputs, asynchronous)
            work and work.wait()
            for loss in saved:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
                    pytest.fail(name)
    dist.barrier()


def case_objects():
    rank, size = me()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size)]
    told = [("a", 1) if rank == 0 else None]
    dist.broadcast_object_list(told, 0)
    assert told == [("a", 1)]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0)
    assert mine == [rank]


def case_works_and_futures():
    rank, size = me()
    x, y = torch.full((3,), float(rank)), torch.ones(100_000)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True), dist.barrier(async_op=True)]
    future = works[1].get_future().then(lambda done: done.value()[0] * 2)
    assert torch.equal(future.wait(), torch.full((100_000,), 2.0 * size))
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
    assert works[0].result()[0] is x and x[0] == size * (size - 1) / 2


def case_works_that_are_dropped():
    """Tensors of dropped works live until the core has finished with them."""
    rank, size = me()
    for _ in range(20):
        dist.all_reduce(torch.full((300_000,), float(rank)), async_op=True)
        dist.all_gather_into_tensor(torch.empty(size * 50_000), torch.ones(50_000), async_op=True)
    kept = torch.ones(300_000)
    dist.all_reduce(kept)
    assert torch.equal(kept, torch.full((300_000,), float(size)))


def case_messages():
    rank, size = me()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 5000, 300_000):
        x, out = torch.full((count,), float(rank)), torch.empty(count)
        works = [dist.isend(x, after, tag=3), dist.irecv(out, before, tag=3)]
        [work.wait() for work in works]
        assert torch.equal(out, torch.full((count,), float(before)))
    two = [torch.empty(2), torch.empty(2)]
    works = [dist.irecv(two[0], before, tag=7), dist.irecv(two[1], before, tag=8)]
    dist.send(torch.full((2,), 8.0), after, tag=8)
    dist.send(torch.full((2,), 7.0), after, tag=7)
    [work.wait() for work in works]
    assert [int(one[0]) for one in two] == [7, 8]
    ops = [
        dist.P2POp(dist.isend, torch.full((4,), float(rank)), after),
        dist.P2POp(dist.irecv, out := torch.empty(4), before),
    ]
    [work.wait() for work in dist.batch_isend_irecv(ops)]
    assert out[0] == before
    if rank == 0:
        seen = {dist.recv(torch.empty(1)) for _ in range(size - 1)}
        assert seen == set(range(1, size))
    else:
        dist.send(torch.ones(1), 0)
    dist.barrier()
    columns = torch.zeros(5, 2)
    works = [dist.isend(torch.arange(5.0), after), dist.irecv(columns[:, 1], before)]
    [work.wait() for work in works]
    assert torch.equal(columns[:, 1], torch.arange(5.0))


def case_a_message_of_another_size():
    rank, size = me()
    if size == 1:
        return
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        with pytest.raises(ringcomm.MismatchError, match="12 bytes to rank 1, which expects 20"):
            dist.recv(torch.empty(5), 0)
    with pytest.raises(ValueError, match="tag"):
        dist.isend(torch.ones(1), (rank + 1) % size, tag=1 << 30)
    dist.barrier()


def case_groups():
    rank, size = me()
    groups = [dist.new_group(list(range(first, size))) for first in range(size)]
    for first, group in enumerate(groups):
        x = torch.ones(3)
        if rank >= first:
            assert isinstance(group, ProcessGroup)
            dist.all_reduce(x, group=group)
            dist.broadcast(y := torch.full((2,), float(rank)), size - 1, group=group)
            assert y[0] == size - 1
            assert dist.get_rank(group) == rank - first
        assert x[0] == (size - first if rank >= first else 1)
    order = list(range(size)) if rank % 2 else list(reversed(range(size)))  # ranks call the groups in different orders
    works, tensors = [], []
    for first in order:
        if rank >= first:
            tensors.append((first, torch.ones(50_000)))
            works.append(dist.all_reduce(tensors[-1][1], group=groups[first], async_op=True))
    [work.wait() for work in works]
    assert all(x[-1] == size - first for first, x in tensors)
    for first in range(1, size):
        if rank >= first:
            dist.destroy_process_group(groups[first])


def case_threads_of_one_rank():
    """Each thread has a separate group."""
    _rank, _size = me()
    groups = [dist.new_group() for _ in range(3)]
    found: list[Any] = [None] * 3

    def work(index: int) -> None:
        x = torch.full((10_000,), float(index))
        for _ in range(20):
            dist.all_reduce(x, dist.ReduceOp.AVG, group=groups[index])
        found[index] = x[0].item()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [0.0, 1.0, 2.0]


def case_a_mismatch_is_told_and_the_group_lives():
    rank, size = me()
    if size == 1:
        return
    with pytest.raises(ringcomm.MismatchError, match="process group"):
        dist.all_reduce(torch.ones(3 + rank))
    work = dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank else torch.float32), async_op=True)
    with pytest.raises(ringcomm.MismatchError):
        work.wait()
    assert isinstance(work.exception(), ringcomm.MismatchError) and not work.is_success()
    failed = dist.all_reduce(torch.ones(3 + rank), async_op=True).get_future()
    with pytest.raises(ringcomm.MismatchError, match="shape"):
        failed.wait()
    dist.all_reduce(x := torch.ones(2))
    assert x[0] == size


def case_a_timeout():
    rank, size = me()
    if size == 1:
        return
    group = dist.new_group(timeout=timedelta(seconds=0.3))
    if rank == 0:
        with pytest.raises(OperationTimeoutError, match="within the timeout of"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    with pytest.raises((ringcomm.RankLeftError, ringcomm.ShutDownError, OperationTimeoutError)):
        for _ in range(2):  # rank 0 has entered the first one, and left
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def case_a_monitored_barrier():
    rank, size = me()
    monitored_barrier()
    if size < 3:
        return
    group = dist.new_group()
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"ranks \[2[^]]*\] have not entered the barrier within 0.3 s"):
            monitored_barrier(group, timedelta(seconds=0.3), wait_all_ranks=True)
    elif rank == 1:
        with pytest.raises(RuntimeError, match="no answer from rank 0"):
            monitored_barrier(group, timedelta(seconds=0.3))
    dist.barrier()


def case_functional_collectives():
    rank, size = me()
    x = torch.full((4, 2), float(rank))
    total = functional.all_reduce(x, "sum", dist.group.WORLD)
    assert torch.equal(functional.wait_tensor(total), torch.full((4, 2), size * (size - 1) / 2))
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    assert torch.equal(functional.wait_tensor(gathered)[::4, 0], torch.arange(float(size)))
    part = functional.reduce_scatter_tensor(torch.ones(size * 3), "sum", 0, dist.group.WORLD)
    assert torch.equal(functional.wait_tensor(part), torch.full((3,), float(size)))


def case_a_mesh():
    _rank, size = me()
    if torch.__version__ < "2.2":
        return  # there are no futures
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("data", "model"))
    dist.all_reduce(x := torch.ones(1), group=mesh["data"].get_group())
    dist.all_reduce(y := torch.ones(1), group=mesh["model"].get_group())
    assert (x.item(), y.item()) == (size, 1)


def case_sparse_gradients():
    rank, size = me()
    indices = torch.tensor([[rank, size]])
    x = torch.sparse_coo_tensor(indices, torch.tensor([[1.0, 2.0], [1.0, 1.0]]), (size + 1, 2))
    dist.all_reduce(x)
    expected = torch.tensor([[1.0, 2.0]] * size + [[float(size)] * 2])
    assert torch.equal(x.to_dense(), expected)
    work = dist.all_reduce(x, dist._make_nccl_premul_sum(0.5), async_op=True)
    work.wait()
    assert torch.equal(x.to_dense(), expected * size / 2)


def case_compressed_buckets():
    """A hook computes the mean; between hosts a rounded one."""
    rank, size = me()
    torch.manual_seed(1)
    plain = torch.nn.Linear(64, 64)
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    wrapped.module.load_state_dict(plain.state_dict())
    wrapped.register_comm_hook(None, compression_hook("int8"))
    data = torch.randn(size, 8, 64, generator=torch.Generator().manual_seed(2))
    for _ in range(3):
        wrapped.zero_grad()
        plain.zero_grad()
        wrapped(data[rank]).square().mean().backward()
        plain(data.flatten(0, 1)).square().mean().backward()
        torch.testing.assert_close(wrapped.module.weight.grad, plain.weight.grad, rtol=0, atol=1e-3)
    with pytest.raises(ValueError, match="is unknown"):
        compression_hook("int7")


class Recommender(torch.nn.Module):
    """Sparse tables, one of which no rank but the first uses, a dense one, and a layer."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(20, 3, sparse=sparse) for _ in range(4))
        self.dense, self.layer = torch.nn.Embedding(20, 3), torch.nn.Linear(3, 1)

    def forward(self, rows: torch.Tensor, rank: int) -> torch.Tensor:
        last = rows if rank == 0 else rows[:0]
        parts = [*(table(rows).mean(0) for table in self.tables[:-1]), self.tables[-1](last).sum(0)]
        return self.layer(torch.stack([*parts, self.dense(rows).mean(0)])).square().sum()


def case_sparse_buckets():
    """The hook averages sparse gradients together, in every format; without a hook, separately."""
    rank, size = me()
    for format in (None, "none", "bf16", "int8"):
        torch.manual_seed(3)
        plain, wrapped = Recommender(False), Recommender(True)
        wrapped.load_state_dict(plain.state_dict())
        parallel = torch.nn.parallel.DistributedDataParallel(wrapped)
        if format is not None:
            parallel.register_comm_hook(None, compression_hook(format))
        for step in range(3):  # DistributedDataParallel rebuilds its buckets after the first
            parallel.zero_grad()
            plain.zero_grad()
            rows = torch.randint(20, (size, 6), generator=torch.Generator().manual_seed(step))
            parallel(rows[rank], rank).backward()
            for other in range(size):
                (plain(rows[other], other) / size).backward()
            for one, expected in zip(wrapped.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(one.grad.to_dense(), expected.grad, rtol=0, atol=0.02)
            assert all(table.weight.grad.is_sparse for table in wrapped.tables)


def case_one_hook_of_two_models():
    """One backward pass through both: no future is lost, and residuals are separate."""
    rank, size = me()
    for format in ("none", "int8"):
        hook = compression_hook(format)
        torch.manual_seed(4)
        plain = [Recommender(False) for _ in range(2)]
        parallel = []
        for one in plain:
            wrapped = Recommender(True)
            wrapped.load_state_dict(one.state_dict())
            parallel.append(torch.nn.parallel.DistributedDataParallel(wrapped))
            parallel[-1].register_comm_hook(None, hook)
        for step in range(4):
            rows = torch.randint(20, (size, 6), generator=torch.Generator().manual_seed(step))
            sum(model(rows[rank], rank) * (1 + i) for i, model in enumerate(parallel)).backward()
            for i, model in enumerate(plain):
                for other in range(size):
                    (model(rows[other], other) * (1 + i) / size).backward()
            for one, model in zip(plain, parallel, strict=True):
                for expected, own in zip(one.parameters(), model.module.parameters(), strict=True):
                    torch.testing.assert_close(own.grad.to_dense(), expected.grad, rtol=0, atol=0.04)
                    own.grad, expected.grad = None, None


class Bucket(NamedTuple):
    """A torch.distributed.GradBucket of one gradient."""

    gradient: torch.Tensor
    number: int
    last: bool

    def buffer(self) -> torch.Tensor:
        return self.gradient

    def parameters(self) -> list[torch.Tensor]:
        return [torch.zeros(self.gradient.shape)]

    def index(self) -> int:
        return self.number

    def is_last(self) -> bool:
        return self.last


def case_sparse_buckets_that_differ():
    """The error is in every future, and the next pass is complete."""
    rank, size = me()
    hook = compression_hook("none")
    for width, wrong in ((2, rank), (3, 0)):
        shape = (4, width + wrong)
        tensors = [torch.sparse_coo_tensor([[1]], torch.ones(1, shape[1]), shape) for _ in range(2)]
        futures = [hook(None, Bucket(tensor, i, i == 1)) for i, tensor in enumerate(tensors)]
        for future in futures:
            if size > 1 and width == 2:
                with pytest.raises(Exception, match="shapes and dtypes must be equal on all ranks"):
                    future.wait()
            else:
                assert future.wait().to_dense().sum() == shape[1]


def case_dense_buckets_that_differ():
    """The error is in the bucket's future only, and the next pass is complete."""
    rank, size = me()
    hook = compression_hook("none")
    for differ in (True, False):
        tensors = [torch.full((4 + rank * differ,), float(rank)), torch.full((3,), float(rank))]
        first, last = [hook(None, Bucket(tensor, i, i == 1)) for i, tensor in enumerate(tensors)]
        if size > 1 and differ:
            with pytest.raises(Exception, match="ranks disagree on shape"):
                first.wait()
        else:
            assert torch.equal(first.wait(), torch.full((4,), (size - 1) / 2))
        assert torch.equal(last.wait(), torch.full((3,), (size - 1) / 2))


def case_hooks_in_another_order_on_each_rank():
    """A hook waits only briefly, because another rank may wait for a bucket of another group."""
    rank, size = me()
    hook, groups = compression_hook("none"), [dist.new_group() for _ in range(2)]
    tensors = [torch.full((5,), rank + which * 10.0) for which in range(2)]
    order = (0, 1) if rank % 2 else (1, 0)
    futures = {which: hook(groups[which], Bucket(tensors[which], 0, True)) for which in order}
    for which, future in futures.items():
        assert torch.equal(future.wait(), torch.full((5,), (size - 1) / 2 + which * 10))
    for group in groups:
        dist.destroy_process_group(group)


def case_beside_the_named_operations():
    import ringcomm.torch as hvd

    rank, size = me()
    hvd.init()
    handle = hvd.allreduce_async(torch.full((9,), float(rank)), name="x", op=hvd.Sum)
    dist.all_reduce(x := torch.ones(9))
    assert torch.equal(hvd.synchronize(handle), torch.full((9,), size * (size - 1) / 2)) and x[0] == size


def case_groups_that_their_members_make_alone():
    """Must be its part's last case: torch 2.15 counts groups on members only.

    Later groups of all ranks then have different names on each rank, and block forever (Gloo's
    too).
    """
    rank, size = me()
    if size < 3:
        return
    pair = [0, size - 1]
    if rank in pair:
        group = dist.new_group(pair, use_local_synchronization=True)
        x = torch.ones(2)
        dist.all_reduce(x, group=group)
        assert x[0] == 2
    dist.barrier()


def case_callbacks_wait_call_and_raise():
    _rank, size = me()

    def call_and_wait(_: Any) -> Tensor:
        x = torch.ones(2)
        dist.all_reduce(x)
        (out,) = dist.all_reduce(x, async_op=True).get_future().wait()
        return out

    def work() -> Any:
        return dist.all_reduce(torch.ones(3), async_op=True)

    later: list[Any] = []
    submitted = threading.Event()

    def wait_for_a_later_one(done: Any) -> Tensor:
        assert submitted.wait(60)
        return later[0].get_future().wait()[0] + done.value()[0]

    first = work().get_future().then(wait_for_a_later_one)
    later.append(work())
    submitted.set()
    assert first.wait().tolist() == [2.0 * size] * 3
    chain = work().get_future().then(call_and_wait).then(lambda done: done.value() + 1)
    assert chain.wait().tolist() == [size * size + 1.0] * 2
    inner = work().get_future().then(lambda _: work().get_future().then(call_and_wait).wait())
    assert inner.wait().tolist() == [size * size] * 2
    # torch's own future runs its callbacks in the thread that completes it
    futures = [work().get_future() for _ in range(3)]
    another = work()
    joined = torch.futures.collect_all(futures).then(lambda _: another.get_future().wait()[0])
    assert joined.wait().tolist() == [size] * 3
    failed = work().get_future().then(lambda _: [][0])
    with pytest.raises(IndexError):
        failed.wait()
    slow, release = threading.Event(), threading.Event()
    held = work().get_future().then(lambda _: (slow.set(), release.wait(60)))
    # it completes although another callback still runs
    assert slow.wait(60) and work().get_future().wait()[0][0] == size
    assert (
        work().get_future().then(lambda done: done.value()[0][0].item()).wait() == size
    )  # completes although the slow callback still runs
    release.set()
    assert held.wait()[1]
    dist.barrier()


def case_powersgd_hook():
    """torch's hook, whose callbacks wait for collectives; several buckets are in flight."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    rank, _size = me()
    for megabytes in (25, 0.01):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=megabytes)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer, random = torch.optim.SGD(model.parameters(), 0.05), torch.Generator().manual_seed(rank)
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.randn(16, 40, generator=random)).pow(2).mean().backward()
            optimizer.step()
        flat = torch.cat([one.detach().reshape(-1) for one in net.parameters()])
        (first := flat.clone()).requires_grad_(False)
        dist.broadcast(first, 0)
        assert torch.equal(flat, first) and flat.isfinite().all()


def case_works_end_before_their_group():
    rank, size = me()
    group = dist.new_group()
    tensors = [torch.full((200_000,), float(rank)) for _ in range(5)]
    for one in tensors:
        dist.all_reduce(one, group=group, async_op=True)
    dist.destroy_process_group(group)
    assert all((one == size * (size - 1) / 2).all() for one in tensors)
    if size == 1:
        return
    group = dist.new_group(timeout=timedelta(seconds=0.3))
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=group, async_op=True)
        with pytest.warns(UserWarning, match=r"call 1 of process group .* is not done after 0.3 s"):
            dist.destroy_process_group(group)
    dist.barrier()
    if rank > 0:
        dist.destroy_process_group(group)


def case_a_rank_that_comes_too_late():
    """The peers of a late rank have timed out in the call, although their data is available."""
    rank, size = me()
    if size == 1:
        return
    for count in (1, 100_000):
        group = dist.new_group(timeout=timedelta(seconds=0.3))
        if rank < size - 1:
            with pytest.raises((OperationTimeoutError, ringcomm.RankLeftError)):
                dist.all_reduce(torch.ones(count), group=group)
        dist.barrier()
        if rank == size - 1:
            with pytest.raises(ringcomm.RankLeftError, match="rank"):
                dist.all_reduce(torch.ones(count), group=group)
        dist.barrier()
