"""allreduce in all forms: dtypes, ops, process sets, scales, compression, odd shapes."""

import itertools
import warnings

import torch
from expected import INTEGER, NUMERIC, OPS, mine, my_sets, raises, reduced, same, value

import ringcomm.torch as hvd

SHAPES = [(), (0,), (0, 3), (3, 0, 2), (1,), (7,), (2, 3, 4), (17, 17, 3)]


def asynchronous(one):
    return lambda tensor, **options: hvd.synchronize(one(tensor, **options))


def of_one(group):
    def call(tensor, **options):
        (result,) = group([tensor], **options)
        return result

    return call


NEW = {
    "allreduce": hvd.allreduce,
    "allreduce_async": asynchronous(hvd.allreduce_async),
    "grouped_allreduce": of_one(hvd.grouped_allreduce),
    "grouped_allreduce_async": of_one(asynchronous(hvd.grouped_allreduce_async)),
}
IN_PLACE = {
    "allreduce_": hvd.allreduce_,
    "allreduce_async_": asynchronous(hvd.allreduce_async_),
    "grouped_allreduce_": of_one(hvd.grouped_allreduce_),
    "grouped_allreduce_async_": of_one(asynchronous(hvd.grouped_allreduce_async_)),
}
FORMS = NEW | IN_PLACE


def check(label, form, tensor, right, **options):
    before = tensor.clone()
    result = form(tensor, **options)
    same(result, right)
    if label in IN_PLACE:
        assert result is tensor
    else:
        assert result is not tensor and torch.equal(tensor, before)


def case_dtypes_ops_and_sets():
    handles = []
    kinds = enumerate(itertools.product([*NUMERIC, torch.bool], OPS))
    for (number, (dtype, op)), one in itertools.product(kinds, my_sets()):
        if dtype != torch.bool or op != hvd.Average:
            tensor = mine((4, 3), dtype, number)
            handle = hvd.allreduce_async(tensor, op=op, name=f"dtypes.{number}", process_set=one)
            handles.append((handle, tensor, dtype, op, one, number))
    for handle, tensor, dtype, op, one, number in handles:
        same(hvd.synchronize(handle), reduced(op, (4, 3), dtype, number, one.ranks))
        assert hvd.poll(handle) and torch.equal(tensor, mine((4, 3), dtype, number))


def case_forms():
    for (name, form), op, one in itertools.product(FORMS.items(), (None, hvd.Sum, hvd.Max), my_sets()):
        right = reduced(hvd.Average if op is None else op, (5,), torch.float32, ranks=one.ranks)
        check(name, form, mine((5,), torch.float32), right, op=op, process_set=one)
        check(name, form, mine((5,), torch.float32), right, op=op, process_set=one, name=f"form.{name}")


def case_shapes():
    for (name, form), shape in itertools.product(FORMS.items(), SHAPES):
        check(name, form, mine(shape, torch.float64), reduced(hvd.Sum, shape, torch.float64), op=hvd.Sum)
        check(name, form, mine(shape, torch.int32), reduced(hvd.Sum, shape, torch.int32), op=hvd.Sum)


def case_scales():
    for (name, form), op in itertools.product(FORMS.items(), (hvd.Average, hvd.Sum)):
        right = reduced(op, (9,), torch.float64) * 0.25 * 3
        check(name, form, mine((9,), torch.float64), right, op=op, prescale_factor=0.25, postscale_factor=3.0)
    whole = hvd.allreduce(torch.full((3,), 4), op=hvd.Sum, prescale_factor=2.0)
    assert whole.tolist() == [8 * hvd.size()] * 3 and whole.dtype == torch.int64


def case_average_argument():
    for name, form in FORMS.items():
        for average, op in ((True, hvd.Average), (False, hvd.Sum)):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                check(name, form, mine((3,), torch.float32), reduced(op, (3,), torch.float32), average=average)
            assert [w.category for w in seen] == [DeprecationWarning]
            raises(ValueError, form, torch.ones(1), average=average, op=op)


def case_averages_of_integers_are_cut():
    for dtype in INTEGER:
        tensor = torch.tensor([hvd.rank(), 1, 0, 5], dtype=dtype)
        n = hvd.size()
        assert hvd.allreduce(tensor).tolist() == [sum(range(n)) // n, 1, 0, 5]


def case_groups_are_mixed():
    shapes = [(4,), (), (2, 3), (0,), (50, 2)]
    dtypes = [torch.float32, torch.float16, torch.int32, torch.float32, torch.bfloat16]
    kinds = list(enumerate(zip(shapes, dtypes, strict=True)))
    for one in my_sets():
        right = [reduced(hvd.Sum, shape, dtype, i, one.ranks) for i, (shape, dtype) in kinds]
        for call in (
            hvd.grouped_allreduce,
            hvd.grouped_allreduce_,
            asynchronous(hvd.grouped_allreduce_async),
            asynchronous(hvd.grouped_allreduce_async_),
        ):
            given = tuple(mine(shape, dtype, i) for i, (shape, dtype) in kinds)
            for a, b in zip(call(given, op=hvd.Sum, name="mixed", process_set=one), right, strict=True):
                same(a, b)
    assert hvd.grouped_allreduce([]) == []


def case_compression():
    x = torch.linspace(-2, 2, 41)
    none, fp16, bf16 = hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16
    for compression, tolerance in ((none, 0.0), (fp16, 1e-3), (bf16, 1e-2)):
        for dtype in (torch.float32, torch.float64, torch.float16):
            result = hvd.allreduce(x.to(dtype), compression=compression)
            (grouped,) = hvd.grouped_allreduce([x.to(dtype)], compression=compression)
            assert result.dtype == grouped.dtype == dtype
            torch.testing.assert_close(result.double(), x.double(), rtol=tolerance + 1e-3, atol=tolerance + 1e-3)
        for dtype in (torch.uint8, torch.int64):
            whole = torch.ones(2, dtype=dtype)
            same(hvd.allreduce(whole, compression=compression, op=hvd.Max), whole)


class Shifted(hvd.Compression.none):
    """A user's compressor with a context that decompress needs."""

    @staticmethod
    def compress(tensor):
        return (tensor - 1).to(torch.float64), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return (tensor + 1).to(ctx)


def case_users_compressor():
    right = reduced(hvd.Average, (6, 2), torch.float32)
    same(hvd.allreduce(mine((6, 2), torch.float32), compression=Shifted), right)
    for result in hvd.grouped_allreduce([mine((6, 2), torch.float32)] * 2, compression=Shifted):
        same(result, right)
    rows = torch.tensor_split(right, hvd.size())[hvd.rank()]
    same(hvd.reducescatter(mine((6, 2), torch.float32), compression=Shifted), rows)


def case_tensors_as_they_come():
    makes = {
        "transposed": lambda r: value(r, (4, 6), torch.float32).t(),
        "strided": lambda r: value(r, (8, 6), torch.float32)[::2, 1::2],
        "channels last": lambda r: value(r, (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last),
        "trained": lambda r: value(r, (4,), torch.float32).requires_grad_(),
        "a view": lambda r: value(r, (9,), torch.float32).narrow(0, 2, 5),
    }
    for make in makes.values():
        right = sum(make(r).detach() for r in range(hvd.size()))
        for name, form in FORMS.items():
            tensor = make(hvd.rank())
            result = form(tensor, op=hvd.Sum)
            same(result.detach(), right)
            assert name not in IN_PLACE or result is tensor
    expanded = torch.full((), float(hvd.rank())).expand(3, 4)
    same(hvd.allreduce(expanded, op=hvd.Max), torch.full((3, 4), hvd.size() - 1.0))
    parameter = torch.nn.Parameter(torch.full((2,), float(hvd.rank())))
    assert hvd.allreduce_(parameter, op=hvd.Max) is parameter and parameter.requires_grad
    assert parameter.tolist() == [hvd.size() - 1.0] * 2


def case_nan_and_infinity():
    nan, inf = float("nan"), float("inf")
    last = hvd.rank() == hvd.size() - 1
    tensor = torch.tensor([nan if last else 1.0, inf if last else 1.0, -0.0 if last else 0.0])
    for op in (hvd.Sum, hvd.Average, hvd.Max, hvd.Min):
        result = hvd.allreduce(tensor, op=op)
        assert result[0].isnan() and (result[1] == (1.0 if op == hvd.Min else inf)), (op, result)


def case_sparse():
    for op, one, sparse_dim in itertools.product((hvd.Sum, hvd.Average), my_sets(), (1, 2)):
        tensor = mine((6, 3), torch.float32).to_sparse(sparse_dim)
        handle = hvd.sparse_allreduce_async(tensor, name="sparse", op=op, process_set=one)
        result = handle() if sparse_dim == 1 else hvd.synchronize(handle)
        assert hvd.poll(handle) and result.is_sparse and result.sparse_dim() == sparse_dim
        same(result.to_dense(), reduced(op, (6, 3), torch.float32, ranks=one.ranks))
    nothing = torch.zeros(4, 2).to_sparse(1) if hvd.rank() else torch.eye(4, 2).to_sparse(1)
    same(hvd.sparse_allreduce_async(nothing, name="one rank's", op=hvd.Sum)().to_dense(), torch.eye(4, 2))


def case_an_algorithm_by_name():
    """Every form accepts an algorithm after Horovod's arguments; ranks compare and run it."""
    x, n = torch.full((5,), float(hvd.rank())), hvd.size()
    for algorithm in ("ring", "tree", "butterfly"):
        for form in (hvd.allreduce_async, hvd.allreduce_async_):
            same(form(x.clone(), op=hvd.Sum, algorithm=algorithm).wait(), torch.full((5,), n * (n - 1) / 2))
        for form in (hvd.grouped_allreduce_async, hvd.grouped_allreduce_async_):
            same(form([x.clone()], op=hvd.Sum, algorithm=algorithm).wait()[0], torch.full((5,), n * (n - 1) / 2))
        want = torch.full((5,), n * (n - 1) / 2)
        for form in (hvd.allreduce, hvd.allreduce_):
            same(form(x.clone(), op=hvd.Sum, algorithm=algorithm), want)
        for form in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
            same(form([x.clone()], op=hvd.Sum, algorithm=algorithm)[0], want)
    assert "ring" in raises(ValueError, hvd.allreduce_async_, x, name="a", algorithm="no such")
    same(hvd.allgather_async(x[:1], algorithm="ring").wait(), torch.arange(float(n)))
    same(hvd.allgather(x[:1], algorithm="ring"), torch.arange(float(n)))
    same(hvd.grouped_allgather([x[:1]], algorithm="ring")[0], torch.arange(float(n)))
    same(hvd.broadcast(x, n - 1, algorithm="binomial"), torch.full((5,), n - 1.0))
    for form in (hvd.broadcast, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        arguments = (torch.ones(n), 0) if form is hvd.broadcast else (torch.ones(n),)
        assert "known: " in raises(ValueError, form, *arguments, algorithm="no such")
    other = "tree" if hvd.rank() else "ring"
    raises(hvd.HorovodInternalError, hvd.allreduce_async(x, name="other", algorithm=other).wait)
