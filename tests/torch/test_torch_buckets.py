"""What the reducer is built from, in one process: buckets, slices, and what hooks see of a backward pass."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from ringcomm.plans import Limits, assign
from ringcomm.torch.buckets import ALIGNMENT, dense_strides, lay_out
from ringcomm.torch.compression import Compression
from ringcomm.torch.slot import GradientWatch, NestedBackward

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


@given(
    st.lists(st.tuples(st.sampled_from([(), (0,), (3,), (2, 5), (4, 3, 3, 3)]), st.sampled_from(DTYPES)), min_size=1)
)
def test_slices_hold_what_is_put_in_and_do_not_overlap(kinds):
    parameters = [torch.randn(shape).to(dtype) for shape, dtype in kinds]
    of = {dtype: [i for i, p in enumerate(parameters) if p.dtype == dtype] for dtype in DTYPES}
    buckets, slices = lay_out([found for found in of.values() if found], parameters)
    for i, parameter in enumerate(parameters):
        view = slices[i].store(parameter)
        assert view is slices[i].view and view.stride() == parameter.stride()
        assert slices[i].address % ALIGNMENT == buckets[slices[i].bucket].flat.data_ptr() % ALIGNMENT
    for i, parameter in enumerate(parameters):
        assert torch.equal(slices[i].view, parameter)
    slices[0].clear()
    assert (slices[0].view == 0).all()
    for i, parameter in list(enumerate(parameters))[1:]:
        assert torch.equal(slices[i].view, parameter)


def test_a_slice_survives_being_pointed_elsewhere():
    parameter = torch.randn(3, 4)
    _, slices = lay_out([[0]], [parameter])
    place = slices[0]
    place.view.set_(torch.ones(7))
    assert torch.equal(place.store(parameter), parameter)
    assert place.view.data_ptr() == place.address


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
        seen.append((nested(), watch.only_added_to(p.grad)))
        watch.look(p.grad)

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
