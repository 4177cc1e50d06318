"""allgather, broadcast, alltoall, reducescatter in all forms: dtypes, unequal rows, sets."""

import itertools

import torch
from cases_2_allreduce import asynchronous, of_one
from expected import FLOATING, INTEGER, MOVED, NUMERIC, OPS, mine, my_sets, raises, reduced, same, value

import ringcomm.torch as hvd

GATHERS = {
    "allgather": hvd.allgather,
    "allgather_async": asynchronous(hvd.allgather_async),
    "grouped_allgather": of_one(hvd.grouped_allgather),
    "grouped_allgather_async": of_one(asynchronous(hvd.grouped_allgather_async)),
}
SCATTERS = {
    "reducescatter": hvd.reducescatter,
    "reducescatter_async": asynchronous(hvd.reducescatter_async),
    "grouped_reducescatter": of_one(hvd.grouped_reducescatter),
    "grouped_reducescatter_async": of_one(asynchronous(hvd.grouped_reducescatter_async)),
}


# ---- allgather -------------------------------------------------------------------------------------------------------
def rows_of(rank):
    return (3 * rank + 1) % 4


def case_allgather_dtypes():
    handles = []
    for (number, dtype), one in itertools.product(enumerate(MOVED), my_sets()):
        tensor = mine((rows_of(hvd.rank()), 2, 3), dtype, number)
        handles.append((hvd.allgather_async(tensor, name=f"g.{number}", process_set=one), number, dtype, one))
    for handle, number, dtype, one in handles:
        same(hvd.synchronize(handle), torch.cat([value(r, (rows_of(r), 2, 3), dtype, number) for r in one.ranks]))


def case_allgather_forms():
    for form, one in itertools.product(GATHERS.values(), my_sets()):
        for name in (None, "given"):
            parts = [value(r, (rows_of(r), 2), torch.float32) for r in one.ranks]
            same(form(mine((rows_of(hvd.rank()), 2), torch.float32), name=name, process_set=one), torch.cat(parts))
        assert form(torch.tensor(hvd.rank()), process_set=one).tolist() == one.ranks  # a scalar is a row
        assert form(torch.empty(0, 5), process_set=one).shape == (0, 5)
        assert form(torch.empty(2, 0), process_set=one).shape == (2 * one.size(), 0)
        only_here = torch.ones(2 if hvd.rank() == one.ranks[-1] else 0, 3)
        same(form(only_here, process_set=one), torch.ones(2, 3))
        turned = torch.arange(6.0).view(2, 3).t()
        same(form(turned, process_set=one), turned.repeat(one.size(), 1))


def case_grouped_allgather():
    for one in my_sets():
        given = [torch.full((hvd.rank() + 1, 2), hvd.rank()), torch.tensor([[1.5]]), torch.empty(0, dtype=torch.bool)]
        a, b, c = hvd.grouped_allgather(given, name="three", process_set=one)
        same(a, torch.cat([torch.full((r + 1, 2), r) for r in one.ranks]))
        same(b, torch.full((one.size(), 1), 1.5))
        assert c.shape == (0,) and c.dtype == torch.bool


# ---- broadcast -------------------------------------------------------------------------------------------------------
def case_broadcast():
    for (number, dtype), one in itertools.product(enumerate(MOVED), my_sets()):
        root = one.ranks[number % one.size()]  # rank in the world
        right = value(root, (3, 4), dtype, number)
        tensor = mine((3, 4), dtype, number)
        same(hvd.broadcast(tensor, root, process_set=one), right)
        same(hvd.synchronize(hvd.broadcast_async(tensor, root_rank=root, name="b", process_set=one)), right)
        same(tensor, mine((3, 4), dtype, number))
        assert hvd.broadcast_(tensor, root, name="b_", process_set=one) is tensor
        same(tensor, right)
        again = mine((3, 4), dtype, number)
        assert hvd.synchronize(hvd.broadcast_async_(again, root, process_set=one)) is again
        same(again, right)


def case_broadcast_shapes():
    for shape in ((), (0,), (1,), (3, 0), (300, 7)):
        for root in range(hvd.size()):
            same(hvd.broadcast(mine(shape, torch.float32), root), value(root, shape, torch.float32))
    strided = mine((4, 6), torch.float32).t()
    assert hvd.broadcast_(strided, 1) is strided
    same(strided, value(1, (4, 6), torch.float32).t())
    leaf = torch.nn.Parameter(torch.full((2,), float(hvd.rank())))
    hvd.broadcast_(leaf, hvd.size() - 1)
    assert leaf.tolist() == [hvd.size() - 1.0] * 2


# ---- alltoall --------------------------------------------------------------------------------------------------------
def sent(origin, to):
    """Returns the number of rows from one rank to another; it differs by direction and may be zero."""
    return (2 * origin + to) % 3


def case_alltoall_splits():
    for (number, dtype), one in itertools.product(enumerate(MOVED), my_sets()):
        splits = [sent(hvd.rank(), to) for to in one.ranks]
        tensor = mine((sum(splits), 2), dtype, number)
        of = {r: value(r, (sum(sent(r, to) for to in one.ranks), 2), dtype, number) for r in one.ranks}
        right = []
        for r in one.ranks:
            begin = sum(sent(r, to) for to in one.ranks if to < hvd.rank())
            right.append(of[r][begin : begin + sent(r, hvd.rank())])
        received = [sent(r, hvd.rank()) for r in one.ranks]
        for given, out in ((splits, torch.int32), (torch.tensor(splits, dtype=torch.int32), torch.int32)):
            rows, counts = hvd.alltoall(tensor, given, process_set=one)
            same(rows, torch.cat(right))
            same(counts, torch.tensor(received, dtype=out))
        rows, counts = hvd.synchronize(hvd.alltoall_async(tensor, torch.tensor(splits), name="a", process_set=one))
        same(rows, torch.cat(right))
        same(counts, torch.tensor(received))


def case_alltoall_even():
    for one in my_sets():
        n, me = one.size(), one.rank()
        tensor = torch.arange(2 * n) + 100 * hvd.rank()
        right = [100 * r + 2 * me + i for r in one.ranks for i in range(2)]
        assert hvd.alltoall(tensor, process_set=one).tolist() == right
        rows, counts = hvd.synchronize(hvd.alltoall_async(tensor, process_set=one))
        assert rows.tolist() == right and counts.tolist() == [2] * n
        assert hvd.alltoall(torch.empty(0, 3), process_set=one).shape == (0, 3)


def case_alltoall_leaves_rows_over():
    """Splits may sum to fewer rows; the remaining rows are not sent; their gradient is zero."""
    n = hvd.size()
    tensor = (torch.arange(n + 2.0) + 10 * hvd.rank()).requires_grad_()
    rows, counts = hvd.alltoall(tensor, splits=[1] * n)
    assert rows.tolist() == [10.0 * r + hvd.rank() for r in range(n)] and counts.tolist() == [1] * n
    rows.sum().backward()
    assert tensor.grad.tolist() == [1.0] * n + [0.0, 0.0]


# ---- reducescatter ---------------------------------------------------------------------------------------------------
def case_reducescatter_dtypes_and_ops():
    handles = []
    kinds = enumerate(itertools.product(NUMERIC, OPS))
    for (number, (dtype, op)), one in itertools.product(kinds, my_sets()):
        handle = hvd.reducescatter_async(mine((5, 2), dtype, number), op=op, name=f"r.{number}", process_set=one)
        handles.append((handle, dtype, op, one, number))
    for handle, dtype, op, one, number in handles:
        parts = torch.tensor_split(reduced(op, (5, 2), dtype, number, one.ranks), one.size())
        same(hvd.synchronize(handle), parts[one.rank()])


def case_reducescatter_forms():
    for (form, one), rows in itertools.product(itertools.product(SCATTERS.values(), my_sets()), (0, 1, 3, 8)):
        right = torch.tensor_split(reduced(hvd.Average, (rows, 3), torch.float64, ranks=one.ranks), one.size())
        same(form(mine((rows, 3), torch.float64), process_set=one), right[one.rank()])
        scales = {"prescale_factor": 0.5, "postscale_factor": 4.0}
        scaled = form(mine((rows, 3), torch.float64), name="s", op=hvd.Sum, process_set=one, **scales)
        same(scaled, right[one.rank()] * one.size() * 2)


def case_grouped_reducescatter():
    n = hvd.size()
    a, b = hvd.grouped_reducescatter([torch.ones(n, 2), torch.ones(2 * n, dtype=torch.int16)], op=hvd.Sum, name="two")
    same(a, torch.full((1, 2), float(n)))
    same(b, torch.full((2,), n, dtype=torch.int16))
    (half,) = hvd.grouped_reducescatter([torch.ones(n)], compression=hvd.Compression.fp16)
    same(half, torch.ones(1))


# ---- barrier and handles ---------------------------------------------------------------------------------------------
def case_barrier():
    for one in my_sets():
        assert hvd.barrier(one) is None
    assert hvd.barrier() is None and hvd.barrier(process_set=hvd.global_process_set) is None


def case_handles():
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
    assert hvd.poll(handle) in (True, False)
    first = hvd.synchronize(handle)
    assert hvd.poll(handle) and torch.equal(first, torch.full((3,), float(hvd.size())))
    assert hvd.synchronize("no handle") is None and hvd.synchronize(10**9) is None
    raises(ValueError, hvd.poll, 12)
    assert {handle: 1}[handle] == 1  # scripts use handles as dictionary keys


def case_every_dtype_is_known():
    assert len({*FLOATING, *INTEGER}) == 9
    wide = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
    for dtype in wide:
        tensor = torch.tensor([1, 2]).to(dtype)
        assert hvd.allreduce(tensor, op=hvd.Sum).tolist() == [hvd.size(), 2 * hvd.size()]
        assert hvd.allgather(tensor).dtype == dtype
