"""Tests the GPU's kernels against the CPU's: equal bits for every dtype, op, scale and alignment.

They run in their C++ form, or with TEST_GPU=device on this machine's GPU, from the package's PTX.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterator

import host_kernels as gpu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_arrays import DTYPES, FLOATS, ON_DEVICE, OPS, SIZES, Array, assert_same, fill_randomly, memory

from ringcomm._src.core import _core

SCALED = [dtype for dtype in range(len(DTYPES)) if _core.reduces(dtype, OPS.index("sum"))]
REDUCED = [(d, o) for d in range(len(DTYPES)) for o in range(len(OPS)) if _core.reduces(d, o)]

counts = st.sampled_from([0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 97, 255, 256, 1000, 3001])
factors = st.sampled_from([1.0, 1.0, 0.5, 1 / 3, 3.0, -2.5, 0.1, 1e-3, 1e30, float("nan"), float("inf")])
divisors = st.sampled_from([1, 1, 2, 3, 4, 7, 9, 127, 200, 40000, 2**31, 2**32 + 1, 2**40])
grids = st.tuples(st.integers(1, 5), st.sampled_from([1, 32, 64, 256]))
seeds = st.integers(0, 2**32 - 1)


forms = ["gpu"] if ON_DEVICE else ["c++", pytest.param("ptx", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", autouse=True, params=forms)
def kernels_of(request: pytest.FixtureRequest) -> Iterator[None]:
    """Selects the sources as C++, the package's PTX interpreted, or that PTX on a GPU."""
    gpu.library("ptx" if request.param == "ptx" else "c++")  # built once, not by every example
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "launch", functools.partial(gpu.launch, form=request.param))
        yield


def reduce_both_ways(dtype, op, count, sources, destinations, in_place, pre, post, divisor, offsets, first, grid, seed):
    rng = np.random.default_rng(seed)
    total = first + count
    inputs = [Array(dtype, total, offsets[s % len(offsets)]) for s in range(sources)]
    for array in inputs:
        fill_randomly(array, dtype, rng)
    outputs = [Array(dtype, total, offsets[(3 * d + 1) % len(offsets)]) for d in range(destinations)]
    outputs[: min(in_place, sources, destinations)] = inputs[: min(in_place, sources, destinations)]
    wanted = Array(dtype, total, 0)
    skip = first * SIZES[dtype]
    _core.kernel_reduce_many(
        dtype, op, [wanted.address + skip], [a.address + skip for a in inputs], count, pre, post, divisor
    )
    name, _, parts = gpu.entry("reduce", dtype, op)
    parameters = gpu.ReduceParameters(
        first=first * parts,
        count=count * parts,
        pre=gpu.scaling_of(dtype, pre, 1),
        post=gpu.scaling_of(dtype, post, divisor),
        source_count=sources,
        destination_count=destinations,
    )
    parameters.sources[:sources] = [a.address for a in inputs]
    parameters.destinations[:destinations] = [a.address for a in outputs]
    before = [array.bytes[:skip].copy() for array in outputs]
    gpu.launch(name, parameters, *grid)
    for array, untouched in zip(outputs, before, strict=True):
        assert (array.bytes[:skip] == untouched).all() and array.rim_is_untouched()
        wrong = np.flatnonzero(array.bytes[skip:] != wanted.bytes[skip:])
        assert wrong.size == 0, f"{name}: element {wrong[0] // SIZES[dtype]}"


@pytest.mark.parametrize("dtype, op", REDUCED, ids=lambda i: str(i))
@given(data=st.data())
@settings(max_examples=25)
def test_reduce(dtype, op, data):
    scales = data.draw(st.booleans()) and op <= OPS.index("product")
    reduce_both_ways(
        dtype,
        op,
        data.draw(counts, "count"),
        data.draw(st.integers(1, 9), "sources"),
        data.draw(st.integers(1, 9), "destinations"),
        data.draw(st.integers(0, 9), "in place"),
        data.draw(factors, "pre") if scales else 1.0,
        data.draw(factors, "post") if scales else 1.0,
        data.draw(divisors, "divisor") if scales else 1,
        data.draw(st.sampled_from([[0], [0], [1], [3], [0, 1], [5, 2, 7]]), "offsets"),
        data.draw(st.sampled_from([0, 0, 1, 16, 37]), "first"),
        data.draw(grids, "grid"),
        data.draw(seeds, "seed"),
    )


def test_reduce_as_many_as_there_may_be():
    for dtype in range(4):
        reduce_both_ways(dtype, OPS.index("sum"), 301, 64, 64, 64, 1.0, 1.0, 64, [0], 0, (2, 64), dtype)


def packed_by_the_cpu(source: Array, to: int, dtype: int, count: int, factor: float, divisor: int) -> Array:
    """Returns the expected result: casts to the wider format, scales in it, and casts from it."""
    wanted, scaled_in = Array(to, count, 0), gpu.library().test_scaled_in(dtype, to)
    identity = (factor, divisor) == (1.0, 1)
    if to == dtype and not identity and dtype in SCALED:
        _core.kernel_scale(dtype, wanted.address, source.address, count, factor, divisor)
    elif to == dtype or identity:
        _core.kernel_cast(to, wanted.address, dtype, source.address, count)
    else:
        wide = Array(scaled_in, count, 0)
        _core.kernel_cast(scaled_in, wide.address, dtype, source.address, count)
        _core.kernel_scale(scaled_in, wide.address, wide.address, count, factor, divisor)
        _core.kernel_cast(to, wanted.address, scaled_in, wide.address, count)
    return wanted


def pack(name: str, size: int, scaling, tensors: list[tuple[int, int, int]], blocks: int, threads: int) -> None:
    """Packs tensors in the necessary number of launches."""
    table = (gpu.Tensor * max(len(tensors), 1))(*(gpu.Tensor(*tensor) for tensor in tensors))
    done = 0
    while done < len(tensors):
        parameters = gpu.PackParameters()
        done += gpu.library().test_plan_pack(
            ctypes.byref(parameters),
            ctypes.byref(table, done * ctypes.sizeof(gpu.Tensor)),
            ctypes.c_size_t(len(tensors) - done),
            size,
            blocks,
        )
        parameters.scaling = scaling
        gpu.launch(name, parameters, blocks, threads)


CASTS = [(a, b) for a in FLOATS for b in FLOATS] + [(d, d) for d in range(4, len(DTYPES))]


@pytest.mark.parametrize("dtype, to", CASTS, ids=lambda i: DTYPES[i])
@given(st.lists(counts | st.just(20000), min_size=1, max_size=6), factors, divisors, seeds, grids, st.data())
@settings(max_examples=25)
def test_pack(dtype, to, lengths, factor, divisor, seed, grid, data):
    if dtype not in SCALED or DTYPES[dtype] == "bool":
        factor, divisor = 1.0, 1
    rng = np.random.default_rng(seed)
    offsets = data.draw(st.sampled_from([[0], [0], [1], [2, 3], [0, 1, 0]]))
    name, _, parts = gpu.entry("pack", dtype, to)
    sources, targets = [], []
    for t, count in enumerate(lengths):
        sources.append(Array(dtype, count, offsets[t % len(offsets)]))
        fill_randomly(sources[-1], dtype, rng)
        targets.append(sources[-1] if dtype == to and seed % 2 else Array(to, count, offsets[-t % len(offsets)]))
    wanted = [packed_by_the_cpu(s, to, dtype, n, factor, divisor) for s, n in zip(sources, lengths, strict=True)]
    tensors = [(s.address, t.address, n * parts) for s, t, n in zip(sources, targets, lengths, strict=True)]
    scaling = gpu.scaling_of(gpu.library().test_scaled_in(dtype, to), factor, divisor)
    pack(name, min(SIZES[dtype], SIZES[to]) // parts, scaling, tensors, *grid)
    for t, (got, want) in enumerate(zip(targets, wanted, strict=True)):
        assert_same(got, want, f"{name}, tensor {t}")


@pytest.mark.parametrize("to", FLOATS, ids=lambda i: DTYPES[i])
@pytest.mark.parametrize("dtype", [0, 1], ids=lambda i: DTYPES[i])
def test_every_half_is_cast(dtype, to):
    source = Array(dtype, 1 << 16, 0)
    source.bytes[:] = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    cast_and_compare(source, dtype, to)


@pytest.mark.parametrize("dtype, to", [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)], ids=lambda i: DTYPES[i])
def test_casts_beside_ties(dtype, to):
    """Tests all 16-bit floats, or many floats: value, next rounding threshold, neighbours."""
    bits = np.uint32 if dtype == 2 else np.uint64
    lost = {(2, 0): 13, (2, 1): 16, (3, 0): 42, (3, 1): 45, (3, 2): 29}[dtype, to]
    halves = Array(min(to, 1), 1 << 16, 0)
    halves.bytes[:] = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    wide = Array(dtype, 1 << 16, 0)
    _core.kernel_cast(dtype, wide.address, min(to, 1), halves.address, 1 << 16)
    exact, tie = wide.bytes.view(bits), bits(1 << (lost - 1))
    near = np.concatenate(
        [exact + bits(step) for step in (0, 1, tie, tie + bits(1), tie - bits(1))] + [exact - bits(1)]
    )
    source = Array(dtype, near.size, 0)
    source.bytes[:] = near.view(np.uint8)
    cast_and_compare(source, dtype, to)


def cast_and_compare(source: Array, dtype: int, to: int) -> None:
    count = source.nbytes // SIZES[dtype]
    got = Array(to, count, 0)
    name = gpu.entry("pack", dtype, to)[0]
    pack(name, min(SIZES[dtype], SIZES[to]), gpu.Scaling(1.0, 1, 0), [(source.address, got.address, count)], 7, 64)
    assert_same(got, packed_by_the_cpu(source, to, dtype, count, 1.0, 1), name)


def test_pack_of_many_tensors():
    lengths = [int(n) for n in np.random.default_rng(0).integers(0, 400, 300)]
    values = [Array(2, n, 0) for n in lengths]
    for array in values:
        fill_randomly(array, 2, np.random.default_rng(array.nbytes))
    bucket = Array(1, sum(lengths), 0)
    places = [bucket.address + 2 * sum(lengths[:t]) for t in range(len(lengths))]
    tensors = [(v.address, place, n) for v, place, n in zip(values, places, lengths, strict=True)]
    pack("rc_pack_float32_bfloat16", 2, gpu.scaling_of(2, 1.0, 3), tensors, 6, 256)
    wanted = [packed_by_the_cpu(v, 1, 2, n, 1.0, 3).bytes for v, n in zip(values, lengths, strict=True)]
    assert np.array_equal(bucket.bytes, np.concatenate(wanted)) and bucket.rim_is_untouched()


@pytest.mark.parametrize("dtype", SCALED, ids=lambda i: DTYPES[i])
@given(counts, factors, divisors, seeds, grids, st.sampled_from([0, 0, 1, 3]))
def test_scale(dtype, count, factor, divisor, seed, grid, misaligned):
    array, wanted = Array(dtype, count, misaligned), Array(dtype, count, 0)
    fill_randomly(array, dtype, np.random.default_rng(seed))
    _core.kernel_scale(dtype, wanted.address, array.address, count, factor, divisor)
    name, _, parts = gpu.entry("scale", dtype)
    tensors = [(array.address, array.address, count * parts)]
    pack(name, SIZES[dtype] // parts, gpu.scaling_of(dtype, factor, divisor), tensors, *grid)
    assert_same(array, wanted, name)


@given(st.sampled_from(range(len(DTYPES))), counts, st.sampled_from([0, 1, 3]), seeds, grids)
def test_fill(dtype, count, misaligned, seed, grid):
    array, wanted, element = Array(dtype, count, misaligned), Array(dtype, count, 0), Array(dtype, 1, 0)
    fill_randomly(element, dtype, np.random.default_rng(seed))
    wanted.bytes[:] = np.tile(element.bytes, count)
    parameters = gpu.FillParameters()
    gpu.library().test_fill_parameters(
        ctypes.byref(parameters),
        ctypes.c_void_p(array.address),
        ctypes.c_size_t(count),
        ctypes.c_void_p(element.address),
        SIZES[dtype],
    )
    gpu.launch("rc_fill", parameters, *grid)
    assert_same(array, wanted, DTYPES[dtype])


@given(
    st.sampled_from(["i1", "i2", "V3", "f4", "V6", "c8", "V12", "c16"]),
    st.lists(st.integers(1, 5), min_size=0, max_size=4),
    seeds,
    grids,
)
def test_strided(dtype, shape, seed, grid):
    """Copies between any two views of one shape; the source view may overlap itself."""
    rng = np.random.default_rng(seed)

    def view(shape):
        order, steps = rng.permutation(len(shape)), rng.choice([-3, -1, 1, 2], len(shape))
        full = [shape[d] * abs(step) for d, step in zip(order, steps[order], strict=True)]
        whole = memory(math.prod(full) * np.dtype(dtype).itemsize).view(dtype).reshape(full)
        whole.reshape(-1).view(np.uint8)[:] = rng.integers(0, 256, whole.nbytes, np.uint8)
        return whole.transpose(np.argsort(order))[(..., *(slice(None, None, step) for step in steps))], whole

    destination, whole = view(shape)
    source, _ = view([1 if rng.random() < 0.2 else length for length in shape])
    source, wanted = np.broadcast_to(source, shape), whole.copy()
    for index in np.ndindex(*shape):
        at = destination.ctypes.data - whole.ctypes.data + int(np.dot(index, destination.strides))
        wanted.reshape(-1).view(np.uint8)[at : at + whole.itemsize] = np.frombuffer(source[index].tobytes(), np.uint8)
    dimensions = [*zip(shape, source.strides, destination.strides, strict=True)]
    parameters, given_ = gpu.StridedParameters(), (ctypes.c_longlong * 3 * len(shape))(*dimensions)
    addresses = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(destination.ctypes.data)
    gpu.library().test_strided_parameters(
        ctypes.byref(parameters), *addresses, given_, ctypes.c_size_t(len(shape)), whole.itemsize
    )
    assert parameters.dimensions <= len(shape) + 1
    gpu.launch("rc_strided", parameters, *grid)
    assert whole.tobytes() == wanted.tobytes()
