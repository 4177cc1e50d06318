"""Parts of the reducer, in one process: buckets, slices, and hooks during a backward pass."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from ringcomm._src.arrays import shared
from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory
from ringcomm._src.torch.buckets import MAX_SEPARATE, Bucket
from ringcomm._src.torch.compression import Compression
from ringcomm._src.torch.in_flight import GradientWatch
from ringcomm._src.torch.nested_backward import NestedBackward
from ringcomm._src.torch.slices import ALIGNMENT, BIG, dense_strides, padded
from ringcomm._src.torch.sparse import from_dense
from ringcomm._src.training.bucket_limits import (
    EFFICIENT,
    Limits,
    assign,
    bucket_limits,
    efficient_bytes,
    overlaps_backward,
)
from ringcomm._src.training.pieces import SMALLEST

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@st.composite
def items(draw):
    count = draw(st.integers(0, 30))
    numbers = st.lists(st.integers(0, 100), min_size=count, max_size=count)
    return (
        draw(st.permutations(range(count))),
        draw(numbers),
        [DTYPES[i % 3] for i in draw(numbers)],
        [None if i < 60 else i % 4 for i in draw(numbers)],
        Limits(draw(st.integers(1, 100)), draw(st.integers(1, 300))),
    )


@given(items())
def test_every_item_is_in_one_bucket_of_its_dtype_and_group(case):
    order, nbytes, dtypes, groups, limits = case
    buckets = assign(order, nbytes, dtypes, groups, limits)
    assert sorted(item for bucket in buckets for item in bucket) == list(range(len(order)))
    for bucket in buckets:
        assert len({(dtypes[i], groups[i]) for i in bucket}) == 1
        assert bucket == sorted(bucket, key=order.index)
    keys = [(groups[b[0]], dtypes[b[0]]) for b in buckets if groups[b[0]] is not None]
    assert len(keys) == len(set(keys)), "a group was split"


@given(items())
def test_buckets_are_full_only_at_their_last_item_and_come_in_the_order_of_filling(case):
    order, nbytes, dtypes, groups, limits = case
    buckets = assign(order, nbytes, dtypes, groups, limits)
    for bucket in buckets:
        if groups[bucket[0]] is None:
            assert sum(nbytes[i] for i in bucket[:-1]) < max(limits.bytes, limits.first_bytes)
    full = [b for b in buckets if groups[b[0]] is not None or sum(nbytes[i] for i in b) >= limits.bytes]
    last = [order.index(b[-1]) for b in full]
    assert last == sorted(last)


@given(st.floats(0, 1e-2), st.floats(0, 1e-7))
def test_a_full_bucket_is_the_smallest_that_is_sent_efficiently(alpha, beta):
    def cost(nbytes):
        return alpha / nbytes + beta

    size, most = efficient_bytes(lambda nbytes: nbytes * cost(nbytes)), EFFICIENT * cost(Limits.bytes) * (1 + 1e-9)
    assert SMALLEST <= size <= Limits.bytes
    assert cost(size) <= most
    if size > SMALLEST:
        assert cost(size / 2 if size < Limits.bytes else SMALLEST) * (1 + 2e-9) >= most
    assert Limits.up_to(size) == Limits(min(size, 1 << 20), size)


@pytest.mark.parametrize(
    ("own_core", "node", "host_of", "overlaps"),
    [
        (False, object(), {0: 0, 1: 0, 2: 1}, False),  # the worker could only interrupt the program
        (True, object(), {0: 0, 1: 0, 2: 1}, True),
        (False, None, {0: 0, 1: 0, 2: 1}, True),
        (False, object(), {0: 0, 1: 1, 2: 1}, True),
    ],
)
def test_buckets_wait_for_the_step_on_one_host_without_a_core_for_the_worker(own_core, node, host_of, overlaps):
    session = SimpleNamespace(own_core=own_core, host_of=host_of, config=SimpleNamespace(fusion_bytes=64 << 20))
    process_set = SimpleNamespace(session=lambda: session, ranks=[0, 1], node=node)
    assert overlaps_backward(process_set) is overlaps
    if not overlaps:
        assert bucket_limits(process_set, overlaps) == Limits(64 << 20, 64 << 20)


class FakeMemory:
    """A stub of a plan that records where stretches were placed."""

    def __init__(self, apart):
        self.apart, self.places = apart, {}

    def takes_stretches(self, bucket):
        return self.apart

    def place(self, bucket, stretch, address):
        self.places[bucket, stretch] = address


def laid_out(assignment, parameters, apart=False, node=None):
    memory = FakeMemory(apart)
    buckets = [Bucket.cut(items, parameters, apart, BucketMemory(node)) for items in assignment]
    slices = {}
    for number, bucket in enumerate(buckets):
        slices |= bucket.lay_out(number, parameters, memory, node)
    return buckets, slices, memory


SHAPES = [(), (0,), (3,), (2, 5), (4, 3, 3, 3), (150, 130), (17, 1001)]


@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)), min_size=1, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_slices_hold_what_is_put_in_and_do_not_overlap(kinds, apart, shared):
    node = _core.Node.for_threads(1)[0] if shared else None
    parameters = [torch.randn(shape).to(dtype) for shape, dtype in kinds]
    of = {dtype: [i for i, p in enumerate(parameters) if p.dtype == dtype] for dtype in DTYPES}
    buckets, slices, memory = laid_out([found for found in of.values() if found], parameters, apart, node)
    for i, parameter in enumerate(parameters):
        view = slices[i].store(parameter)
        assert view is slices[i].view and view.stride() == parameter.stride()
    for number, bucket in enumerate(buckets):
        apart_here = apart or len(bucket.stretches) == 1
        offset = 0
        starts = [memory.places.get((number, stretch)) for stretch in range(len(bucket.stretches))]
        for stretch, count in enumerate(bucket.stretches):
            if starts[stretch] is None:
                assert not apart_here
                starts[stretch] = starts[0] + offset
            offset += count * bucket.dtype.itemsize
        for item, (stretch, first) in zip(bucket.items, bucket.where, strict=True):
            assert first * bucket.dtype.itemsize % ALIGNMENT == 0
            if parameters[item].numel():
                assert slices[item].view.data_ptr() == starts[stretch] + first * bucket.dtype.itemsize
    for i, parameter in enumerate(parameters):
        assert torch.equal(slices[i].stored(), parameter)
    slices[0].clear()
    assert (slices[0].view == 0).all()
    for i, parameter in list(enumerate(parameters))[1:]:
        assert torch.equal(slices[i].view, parameter)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=400))
def test_stretches_are_few_and_the_biggest_lie_apart(sizes):
    parameters = [torch.empty(size) for size in sizes]
    bucket = Bucket.cut(range(len(sizes)), parameters, True, BucketMemory(None))
    assert len(bucket.stretches) <= 2 * MAX_SEPARATE + 1 and len(bucket.separate) <= MAX_SEPARATE
    assert sum(bucket.stretches) == sum(map(padded, parameters))
    apart = sorted(sizes[item] for item, (stretch, _) in enumerate(bucket.where) if stretch in bucket.separate)
    others = sorted(
        padded(parameters[i]) for i, (stretch, _) in enumerate(bucket.where) if stretch not in bucket.separate
    )
    assert not apart or not others or others[-1] <= padded(torch.empty(apart[0])) or others[-1] * 4 < BIG


@pytest.mark.parametrize("apart", [False, True])
def test_a_slice_survives_being_pointed_elsewhere(apart):
    parameter = torch.randn(300, 400)
    _, slices, memory = laid_out([[0]], [parameter], apart)
    place = slices[0]
    place.store(parameter)
    place.stored().set_(torch.ones(7))
    place.store(parameter)
    assert torch.equal(place.stored(), parameter)
    assert place.view.data_ptr() == memory.places[0, 0]


def in_arena(node, parameter):
    view = torch.from_numpy(shared.empty(node, parameter.shape, "float32"))
    own = torch.empty(0).set_(view.untyped_storage(), 0, parameter.shape, parameter.stride())
    return own.copy_(parameter)


def test_a_big_gradient_travels_from_where_it_lies():
    node = _core.Node.for_threads(1)[0]
    parameters = [torch.randn(200, 300), torch.randn(10), torch.randn(300, 200)]
    _, slices, memory = laid_out([[0, 1, 2]], parameters, True, node)
    born = in_arena(node, parameters[0])
    assert slices[0].store(born) is born and memory.places[0, 0] == born.data_ptr()
    other = slices[2].store(parameters[2])  # in ordinary memory
    assert other is not parameters[2] and node.offset_of(other.data_ptr(), 4) is not None
    for each in slices.values():
        each.release()
    assert slices[2].store(other) is other  # it has become .grad
    for twin in (born.t().contiguous().t(), born[:100], born.expand(2, 200, 300)[0], born.view(-1).view(200, 300)):
        stored = slices[0].store(twin) if twin.shape == born.shape else born
        assert stored is not twin  # other strides, or another tensor uses its memory
    del twin
    assert slices[0].move_out(born) is born
    slices[0].clear()
    assert torch.equal(born, parameters[0])


def test_a_copy_that_is_to_be_kept_is_left():
    node = _core.Node.for_threads(1)[0]
    parameter = torch.randn(200, 300)
    _, slices, _ = laid_out([[0]], [parameter], True, node)
    copy = slices[0].store(parameter)
    slices[0].release()
    assert slices[0].move_out(copy) is copy
    slices[0].clear()
    assert torch.equal(copy, parameter)


@given(st.permutations(range(4)), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_strides_of_dense_tensors_are_kept(order, shape):
    tensor = torch.empty(shape).permute(*order)
    view = torch.empty_like(tensor).as_strided(tensor.shape, dense_strides(tensor))
    assert view.shape == tensor.shape
    assert all(a == b for a, b, n in zip(dense_strides(tensor), tensor.stride(), tensor.shape, strict=True) if n > 1)


def test_strides_of_others_are_contiguous():
    assert dense_strides(torch.empty(4, 6)[::2, ::2]) == (3, 1)
    assert dense_strides(torch.empty(1).expand(3, 2)) == (2, 1)


def seen_by_hook(run, parameter):
    nested, watch, seen = NestedBackward(), GradientWatch(), []

    def hook(p):
        seen.append((nested(False), watch.has_writes(p.grad, 1)))
        watch.record(p.grad)

    handle = parameter.register_post_accumulate_grad_hook(hook)
    run()
    handle.remove()
    return seen


def test_hooks_tell_added_from_cleared_gradients():
    layer = nn.Linear(2, 2)

    def backward():
        layer(torch.ones(1, 2)).sum().backward()

    def run():
        backward()
        backward()
        layer.zero_grad(set_to_none=False)
        backward()
        backward()
        layer.zero_grad()
        backward()
        layer.weight.grad.mul_(2)
        backward()

    added = [only for _, only in seen_by_hook(run, layer.weight)]
    assert added == [False, True, False, True, False, False]


@pytest.mark.parametrize("reentrant", [True, False])
def test_hooks_tell_nested_backward_passes(reentrant):
    layer = nn.Linear(2, 2)

    def run():
        x = torch.ones(1, 2, requires_grad=True)
        x = checkpoint(layer, x, use_reentrant=reentrant)
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()

    nested = [inside for inside, _ in seen_by_hook(run, layer.weight)]
    assert nested == ([True, True] if reentrant else [False])


def test_compressors():
    x = torch.linspace(-2, 2, 7)
    for compressor, dtype in ((Compression.fp16, torch.float16), (Compression.bf16, torch.bfloat16)):
        sent, context = compressor.compress(x)
        assert sent.dtype == dtype
        assert compressor.decompress(sent, context).dtype == torch.float32
        whole, context = compressor.compress(torch.arange(3))
        assert whole.dtype == torch.int64 and compressor.decompress(whole, context) is whole
    sent, context = Compression.none.compress(x)
    assert sent is x and context is None and Compression.none.decompress(sent, context) is x


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_sparse_tensors_of_dense_ones(shape, data):
    """Compares with torch's own conversion."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]))
    dense = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    dense = dense.to(dtype).transpose(0, -1)
    if dtype.is_floating_point:
        dense = torch.where(dense == 1, dense * data.draw(st.sampled_from([1.0, float("nan")])), dense)
    sparse_dim = data.draw(st.integers(1, len(shape)))
    result, expected = from_dense(dense, sparse_dim), dense.to_sparse(sparse_dim)
    assert result.is_coalesced() and result.shape == expected.shape and result.dtype == expected.dtype
    for part in (torch.Tensor.indices, torch.Tensor.values):
        torch.testing.assert_close(part(result), part(expected), rtol=0, atol=0, equal_nan=True)
