"""Every operation, compared with what one process computes from all ranks' inputs."""

import gc
import itertools
import random
import warnings

import torch

import ringcomm.torch as hvd
from ringcomm._src.base.errors import MismatchError

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
SHAPES = [(), (0,), (0, 3), (3, 0, 2), (1,), (5,), (2, 3, 4), (17, 17, 3)]
OPS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]


def value(rank, shape, dtype, seed=0):
    """Returns a rank's input: small integers, which every dtype represents exactly."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    low, high = (0, 2) if dtype == torch.bool else (0, 4) if dtype == torch.uint8 else (-3, 4)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def reduced(op, shape, dtype, seed=0):
    values = torch.stack([value(rank, shape, dtype, seed) for rank in range(hvd.size())])
    if dtype == torch.bool:
        return values.all(0) if op in (hvd.Min, hvd.Product) else values.any(0)
    wide = values.to(torch.float64 if dtype.is_floating_point else torch.int64)
    if op == hvd.Average:
        mean = wide.sum(0) / hvd.size()
        return mean.to(dtype) if dtype.is_floating_point else mean.trunc().to(dtype)
    result = {
        hvd.Sum: lambda: wide.sum(0),
        hvd.Product: lambda: wide.prod(0),
        hvd.Min: lambda: wide.amin(0),
        hvd.Max: lambda: wide.amax(0),
    }
    return result[op]().to(dtype)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype.is_floating_point:
        torch.testing.assert_close(a, b, rtol=1e-2 if a.element_size() == 2 else 1e-6, atol=0)
    else:
        assert torch.equal(a, b), (a, b)


def raises(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function} did not raise {kind}")


def case_allreduce_dtypes_and_ops():
    for dtype, op in itertools.product([*FLOATING, *INTEGER, torch.bool], OPS):
        if dtype == torch.bool and op == hvd.Average:
            continue
        x = value(hvd.rank(), (4, 5), dtype)
        before = x.clone()
        same(hvd.allreduce(x, op=op), reduced(op, (4, 5), dtype))
        assert torch.equal(x, before)


def case_averages_are_quotients():
    """The average is the sum / ranks, bit for bit: single, small, large, fused, in place."""
    size = hvd.size()
    for dtype, count in itertools.product(FLOATING, (5, 70_000)):
        inputs = [torch.arange(count).remainder(20).add(rank).to(dtype) for rank in range(size)]
        mean = (torch.stack(inputs).double().sum(0) / size).to(dtype)
        x = inputs[hvd.rank()]
        assert torch.equal(hvd.allreduce(x), mean)
        for one in hvd.grouped_allreduce([x, x.clone()]):
            assert torch.equal(one, mean)
        assert torch.equal(hvd.allreduce_(x.clone(), name=f"quotient {dtype} {count}"), mean)
        rows = hvd.reducescatter(x.repeat(size, 1), op=hvd.Average)
        assert torch.equal(rows, mean[None])


def case_allreduce_shapes():
    for dtype, shape in itertools.product([torch.float32, torch.int64], SHAPES):
        same(hvd.allreduce(value(hvd.rank(), shape, dtype), op=hvd.Sum), reduced(hvd.Sum, shape, dtype))
        x = value(hvd.rank(), shape, dtype)
        assert hvd.allreduce_(x, op=hvd.Sum) is x
        same(x, reduced(hvd.Sum, shape, dtype))


def case_not_contiguous():
    make = {
        "transposed": lambda r: value(r, (4, 6), torch.float32).t(),
        "strided": lambda r: value(r, (8, 6), torch.float32)[::2, 1::2],
        "channels_last": lambda r: value(r, (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last),
    }
    for kind, of in make.items():
        expected = sum(of(r) for r in range(hvd.size()))
        same(hvd.allreduce(of(hvd.rank()), op=hvd.Sum), expected)
        x = of(hvd.rank())
        assert hvd.allreduce_(x, op=hvd.Sum, name=kind) is x
        same(x, expected)
        y = of(hvd.rank())
        assert hvd.broadcast_(y, hvd.size() - 1, name=kind) is y
        same(y, of(hvd.size() - 1))
    expanded = torch.full((), float(hvd.rank())).expand(3, 4)
    same(hvd.allreduce(expanded, op=hvd.Max), torch.full((3, 4), hvd.size() - 1.0))


def case_complex_and_bits():
    """Also tests tensors with the conjugate bit, after calls with equal tensors that lack it."""
    x = torch.full((4,), complex(hvd.rank(), 1))
    total = sum(torch.full((4,), complex(rank, 1)) for rank in range(hvd.size()))
    for turn in range(4):
        y = x.clone() if turn < 2 else x.clone().conj()
        hvd.allreduce_(y, op="sum", name="conjugated")
        same(y, total if turn < 2 else total.conj().resolve_conj())
    bits = torch.tensor([1 << hvd.rank(), 7])
    same(hvd.allreduce(bits, op="bor"), torch.tensor([(1 << hvd.size()) - 1, 7]))
    same(
        hvd.reducescatter(bits.repeat(hvd.size()), op="bxor"),
        torch.tensor([(1 << hvd.size()) - 1, 7 * (hvd.size() % 2)]),
    )
    raises(TypeError, hvd.allreduce, torch.ones(2), op="band")


def case_scales():
    x = value(hvd.rank(), (50,), torch.float64)
    expected = reduced(hvd.Sum, (50,), torch.float64) * 0.25 * 3.0
    same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.25, postscale_factor=3.0), expected)
    same(hvd.allreduce(x, prescale_factor=0.25, postscale_factor=3.0), expected / hvd.size())


def case_average_argument():
    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        same(hvd.allreduce(x, average=True), x)
        same(hvd.allreduce(x, average=False), x * hvd.size())
        for call in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
            raises(ValueError, call, x, average=True, op=hvd.Sum)
        raises(ValueError, hvd.grouped_allreduce, [x], average=False, op=hvd.Sum)


def case_grouped():
    dtypes = [torch.float32, torch.float16, torch.int32, torch.float32]
    xs = [value(hvd.rank(), (i + 1, 3), dtype, i) for i, dtype in enumerate(dtypes)]
    expected = [reduced(hvd.Sum, (i + 1, 3), dtype, i) for i, dtype in enumerate(dtypes)]
    for result, right in zip(hvd.grouped_allreduce(xs, op=hvd.Sum, name="group"), expected, strict=True):
        same(result, right)
    results = hvd.grouped_allreduce_(xs, op=hvd.Sum)
    for result, x, right in zip(results, xs, expected, strict=True):
        assert result is x
        same(x, right)
    gathered = hvd.grouped_allgather([torch.full((hvd.rank() + 1, 2), hvd.rank()), torch.tensor([hvd.rank()])])
    assert gathered[0].shape == (sum(range(1, hvd.size() + 1)), 2)
    assert gathered[1].tolist() == list(range(hvd.size()))
    scattered = hvd.grouped_reducescatter([torch.ones(hvd.size(), 2), torch.ones(2 * hvd.size())], op=hvd.Sum)
    assert [tuple(t.shape) for t in scattered] == [(1, 2), (2,)]
    assert all((t == hvd.size()).all() for t in scattered)


def case_any_order():
    """Ranks may submit named operations in different orders."""
    numbers = list(range(40))
    random.Random(hvd.rank()).shuffle(numbers)
    handles = {n: hvd.allreduce_async(torch.full((n % 7 + 1,), float(n)), name=f"any.{n}", op=hvd.Sum) for n in numbers}
    random.Random(100 + hvd.rank()).shuffle(numbers)
    for n in numbers:
        same(hvd.synchronize(handles[n]), torch.full((n % 7 + 1,), float(n * hvd.size())))
        assert hvd.poll(handles[n])


def case_name_in_flight():
    x = torch.ones(4)
    if hvd.size() > 1 and hvd.rank() == 0:
        handle = hvd.allreduce_async(x, name="twice")
        raises(ValueError, hvd.allreduce_async, x, name="twice")
        hvd.barrier()
        hvd.synchronize(handle)
    else:
        hvd.barrier()
        hvd.allreduce(x, name="twice")
    same(hvd.allreduce(x, name="twice"), x)


def case_allgather():
    for dtype in [*FLOATING, *INTEGER, torch.bool, torch.complex64]:
        rows = [(3 * r + 1) % 4 for r in range(hvd.size())]
        parts = [value(r, (rows[r], 2, 3), dtype) for r in range(hvd.size())]
        same(hvd.allgather(parts[hvd.rank()]).to(torch.complex64), torch.cat(parts).to(torch.complex64))
    assert hvd.allgather(torch.tensor(hvd.rank())).tolist() == list(range(hvd.size()))
    assert hvd.allgather(torch.empty(0, 5)).shape == (0, 5)
    assert hvd.allgather(torch.ones(2, 4).t()).shape == (4 * hvd.size(), 2)


def case_result_outlives_everything():
    result = hvd.allgather(torch.full((1000,), float(hvd.rank())))
    part = result[:10]
    del result
    gc.collect()
    for _ in range(20):
        hvd.allgather(torch.full((1000,), 7.0))
    assert (part == 0).all()


def case_broadcast():
    for root, dtype in itertools.product(
        range(hvd.size()), [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128]
    ):
        x = value(hvd.rank(), (3, 4), dtype)
        right = value(root, (3, 4), dtype)
        assert torch.equal(hvd.broadcast(x, root), right)
        assert torch.equal(x, value(hvd.rank(), (3, 4), dtype))
        assert hvd.broadcast_(x, root) is x
        assert torch.equal(x, right)
    raises(ValueError, hvd.broadcast, torch.ones(1), hvd.size())


def case_alltoall():
    size, rank = hvd.size(), hvd.rank()
    x = torch.arange(size * 2) + 100 * rank
    assert hvd.alltoall(x).tolist() == [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    splits = [(rank + to) % 3 for to in range(size)]
    x = torch.cat([torch.full((n, 2), 10.0 * rank + to) for to, n in enumerate(splits)])
    for given, dtype in (
        (splits, torch.int32),
        (torch.tensor(splits), torch.int64),
        (torch.tensor(splits, dtype=torch.int32), torch.int32),
    ):
        output, received = hvd.alltoall(x, splits=given)
        assert received.dtype == dtype and received.tolist() == [(r + rank) % 3 for r in range(size)]
        right = [torch.full(((r + rank) % 3, 2), 10.0 * r + rank) for r in range(size)]
        same(output, torch.cat(right))
    raises(ValueError, hvd.alltoall, torch.ones(3), splits=[1] * (size + 1))


def case_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for rows, op in itertools.product([0, 1, size, 2 * size + 1], OPS):
        x = value(rank, (rows, 3), torch.float32)
        parts = torch.tensor_split(reduced(op, (rows, 3), torch.float32), size)
        same(hvd.reducescatter(x, op=op), parts[rank])
    raises(ValueError, hvd.reducescatter, torch.tensor(1.0))


def case_compression():
    x = torch.linspace(-1, 1, 100)
    for compression, tolerance in (
        (hvd.Compression.none, 1e-7),
        (hvd.Compression.fp16, 1e-3),
        (hvd.Compression.bf16, 1e-2),
    ):
        result = hvd.allreduce(x, compression=compression)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, x, rtol=tolerance, atol=tolerance)
    whole = torch.arange(5)
    assert torch.equal(hvd.allreduce(whole, compression=hvd.Compression.fp16, op=hvd.Sum), whole * hvd.size())


def case_compression_means_one_thing():
    """Operations return the same as the optimizer; on one host nothing is encoded."""
    x = torch.cat([torch.linspace(-1, 1, 64), torch.logspace(-12, -6, 64)]) * (hvd.rank() + 1)
    everybody = sum(range(1, hvd.size() + 1))
    shares = [len(part) for part in torch.tensor_split(x, hvd.size())]
    begin = sum(shares[: hvd.rank()])
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        parameter = torch.nn.Parameter(torch.zeros(128))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), compression=compression, op=hvd.Sum)
        for _ in range(4):  # first without a plan, later in one
            optimizer.zero_grad()
            (parameter * x).sum().backward()
            optimizer.step()
        expected = parameter.grad
        assert torch.equal(hvd.allreduce(x, compression=compression, op=hvd.Sum), expected)
        assert torch.equal(hvd.grouped_allreduce([x], compression=compression, op=hvd.Sum)[0], expected)
        for scattered in (
            hvd.reducescatter(x, compression=compression, op=hvd.Sum),
            hvd.grouped_reducescatter([x], compression=compression, op=hvd.Sum)[0],
        ):
            assert torch.equal(scattered, expected[begin : begin + len(scattered)])
        torch.testing.assert_close(expected, x / (hvd.rank() + 1) * everybody, rtol=1e-6, atol=0)
        y = x.clone().requires_grad_()
        hvd.allreduce(y, compression=compression, op=hvd.Sum).backward(x)
        assert torch.equal(y.grad, expected)


def case_sparse():
    rank, size = hvd.rank(), hvd.size()
    dense = torch.zeros(6, 2)
    dense[rank % 6] = 1.0 + rank
    dense[5] = 1.0
    total = sum(_sparse_row(r) for r in range(size))
    for op, right in ((hvd.Sum, total), (hvd.Average, total / size)):
        handle = hvd.sparse_allreduce_async(dense.to_sparse(1), name="sparse", op=op)
        same(hvd.synchronize(handle).to_dense(), right)
    raises(ValueError, hvd.sparse_allreduce_async, dense, name="sparse", op=hvd.Sum)


def _sparse_row(rank):
    dense = torch.zeros(6, 2)
    dense[rank % 6] = 1.0 + rank
    dense[5] = 1.0
    return dense


def case_refused():
    for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall):
        assert "meta" in raises(ValueError, call, torch.empty(2, device="meta"))
        raises(TypeError, call, [1, 2])
        raises(ValueError, call, torch.eye(2).to_sparse())
    raises(ValueError, hvd.allreduce, torch.zeros(2, dtype=torch.complex32))
    raises(ValueError, hvd.allreduce, torch.ones(2, dtype=torch.complex64), op=hvd.Max)


def case_mismatch_leaves_the_job_alive():
    if hvd.size() == 1:
        return
    odd = hvd.rank() == hvd.size() - 1
    wrong = {
        "shape": lambda: hvd.allreduce(torch.ones(3 + odd), name="wrong.shape"),
        "dtype": lambda: hvd.allreduce(
            torch.ones(3, dtype=torch.float64 if odd else torch.float32), name="wrong.dtype"
        ),
        "op": lambda: hvd.allreduce(torch.ones(3), name="wrong.op", op=hvd.Max if odd else hvd.Sum),
        "root": lambda: hvd.broadcast(torch.ones(3), int(odd), name="wrong.root"),
        "row": lambda: hvd.allgather(torch.ones(2, 3 + odd), name="wrong.row"),
    }
    for kind, call in wrong.items():
        assert f"wrong.{kind}" in raises(MismatchError, call)
        raises(hvd.HorovodInternalError, call)
        same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))


def case_process_sets():
    even = hvd.add_process_set(hvd.ProcessSet(range(0, hvd.size(), 2))) if hvd.size() > 2 else hvd.global_process_set
    if even.included():
        same(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=even), torch.full((2,), float(even.size())))
        x = hvd.broadcast(torch.tensor([hvd.rank()]), root_rank=even.ranks[-1], process_set=even)
        assert x.tolist() == [even.ranks[-1]]
    else:
        raises(ValueError, hvd.allreduce, torch.ones(2), process_set=even)
    hvd.barrier()
    if hvd.size() > 2:
        hvd.remove_process_set(even)


def case_what_is_built():
    assert hvd.mpi_built() and not hvd.gloo_built() and not hvd.nccl_built() and hvd.cuda_built()
    assert not (hvd.gloo_enabled() or hvd.ddl_built() or hvd.ccl_built() or hvd.rocm_built())
    assert hvd.mpi_enabled() or hvd.size() == 1
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert hvd.local_size() * hvd.cross_size() >= hvd.size() and hvd.local_rank() < hvd.local_size()
    assert hvd.mpi_threads_supported() in (True, False)
