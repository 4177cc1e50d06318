"""Arrays of collectives: accepted kinds, returned kinds, and refused arrays."""

from __future__ import annotations

import array
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads
from ringcomm._src.arrays import arrays, numpy_kind

torch = pytest.importorskip("torch")


def alone(fn):
    return threads.run(1, fn)[0]


def pair(fn):
    return threads.run(2, fn)


@pytest.mark.parametrize(
    "x",
    [
        [1.0, 2.0],
        (3, 4),
        5,
        2.5,
        True,
        array.array("f", [1, 2]),
        memoryview(b"abc"),
        bytearray(b"xyz"),
        np.float32(1.5),
    ],
    ids=lambda x: type(x).__name__,
)
def test_anything_with_values_is_input(x):
    expected = np.frombuffer(x, np.uint8) if isinstance(x, bytearray) else np.asarray(x)
    for result in pair(lambda comm: comm.allreduce(x, ringcomm.Max)):
        assert isinstance(result, np.ndarray)
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)


class DLPackOnly:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class InterfaceOnly:
    def __init__(self, x):
        self.x, self.__array_interface__ = x, x.__array_interface__


@pytest.mark.parametrize("wrap", [DLPackOnly, InterfaceOnly, memoryview])
def test_protocols_share_memory(wrap):
    x = np.arange(6.0)
    assert arrays.source(wrap(x)).address == x.ctypes.data
    if wrap is not DLPackOnly:  # NumPy's version decides whether imported DLPack memory is read-only
        y = wrap(x)
        assert alone(lambda comm: comm.allreduce(x * 0 + 2, out=y)) is y
        assert x.tolist() == [2.0] * 6


@given(st.sampled_from([np.s_[::2], np.s_[:, 1], np.s_[::-1], np.s_[1:, ::3]]), st.booleans())
def test_strided_arrays(cut, with_torch):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    if with_torch and cut == np.s_[::-1]:
        return  # torch has no negative strides

    def program(comm):
        mine = torch.from_numpy(base.copy()) if with_torch else base.copy()
        view = mine[cut]
        fresh = comm.allreduce(view)
        assert comm.allreduce(view, out=view) is view
        return np.asarray(fresh), np.asarray(mine)

    for fresh, whole in pair(program):
        np.testing.assert_array_equal(fresh, 2 * base[cut])
        expected = base.copy()
        expected[cut] *= 2
        np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "bool", "uint8"])
def test_torch_tensors_come_back_as_tensors(dtype):
    dtype = getattr(torch, dtype)

    def program(comm):
        x = torch.ones(3, 2, dtype=dtype)
        y = comm.allreduce(x, ringcomm.Max)
        gathered = comm.allgather(x[: comm.rank + 1])
        swapped, _ = comm.alltoall(torch.ones(2, dtype=dtype), [1, 1])
        in_place = comm.broadcast(x, out=x)
        return y, gathered, swapped, in_place is x

    for y, gathered, swapped, same in pair(program):
        assert same and y.dtype == gathered.dtype == swapped.dtype == dtype
        assert y.shape == (3, 2) and gathered.shape == (3, 2) and swapped.shape == (2,)
        assert bool((y == 1).all())


def test_tensors_with_gradients_and_conjugates():
    def program(comm):
        weight = torch.nn.Parameter(torch.ones(2))
        total = comm.allreduce(weight)
        comm.allreduce(weight, out=weight)
        conjugate = comm.broadcast(torch.tensor([1 + 2j]).conj())
        return total, weight.detach(), conjugate

    for total, weight, conjugate in pair(program):
        assert total.tolist() == weight.tolist() == [2, 2] and not total.requires_grad
        assert conjugate.tolist() == [1 - 2j]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 2), (2, 1, 3)])
def test_shapes_are_kept(shape):
    def program(comm):
        x = np.ones(shape, np.float32)
        return comm.allreduce(x), comm.broadcast(x), comm.allgather(x)

    for total, sent, gathered in pair(program):
        assert total.shape == sent.shape == shape
        assert gathered.shape == ((2 * shape[0], *shape[1:]) if shape else (2,))


def test_big_endian_is_refused_and_says_what_to_do():
    x = np.arange(3, dtype=">f4")
    with pytest.raises(TypeError, match=r"byte order.*astype"):
        alone(lambda comm: comm.allreduce(x))
    assert alone(lambda comm: comm.allreduce(x.astype(x.dtype.newbyteorder("=")))).tolist() == [0, 1, 2]


@pytest.mark.parametrize("x", [np.array([object()]), np.array(["ab"]).astype("O"), np.empty(2, "V0")])
def test_what_has_no_plain_bytes_is_refused(x):
    with pytest.raises(TypeError):
        alone(lambda comm: comm.broadcast(x))


def test_dtypes_without_arithmetic_can_only_be_moved():
    x = np.zeros(2, "V3")
    with pytest.raises(TypeError, match=r"Sum does not support .*V3.*it supports float16"):
        alone(lambda comm: comm.allreduce(x))
    dates = np.array(["2024-01-01", "2025-06-07"], "M8[D]")
    assert all(
        np.array_equal(result, np.concatenate([dates, dates])) for result in pair(lambda comm: comm.allgather(dates))
    )


def test_moved_dtypes_of_equal_width_are_told_apart():
    def program(comm):
        x = np.zeros(2, "c8" if comm.rank else "V8")
        with pytest.raises(ringcomm.MismatchError):
            comm.broadcast(x)
        return comm.broadcast(np.zeros(2, "c8")).dtype

    assert pair(program) == [np.dtype("c8")] * 2


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.zeros(4, np.float32), ValueError),
        (np.zeros(3, np.float64), ValueError),
        (np.broadcast_to(np.float32(0), 3), ValueError),
        ([0.0, 0.0, 0.0], TypeError),
        (1.0, TypeError),
    ],
    ids=["shape", "dtype", "read-only", "list", "scalar"],
)
def test_outputs_must_fit(out, error):
    with pytest.raises(error):
        alone(lambda comm: comm.allreduce(np.zeros(3, np.float32), out=out))


def test_device_memory_is_refused():
    """Refuses memory of no driver, and of other makers' devices (tests/gpu has the rest)."""

    class OnGpu:
        __cuda_array_interface__ = {"version": 3, "shape": (3,), "typestr": "<f4", "data": (4096, False)}  # noqa: RUF012

    class OnRocm:
        def __dlpack_device__(self):
            return 10, 0

        def __dlpack__(self, **how):
            raise AssertionError("asked for an address")

    with pytest.raises(TypeError, match="GPU"):
        alone(lambda comm: comm.allreduce(OnGpu()))
    with pytest.raises(TypeError, match="device of DLPack type 10"):
        alone(lambda comm: comm.allreduce(OnRocm()))
    with pytest.raises(TypeError, match="meta"):
        alone(lambda comm: comm.allreduce(torch.empty(2, device="meta")))


@pytest.mark.parametrize("wrong", [99, "plus", None])
def test_unknown_reductions(wrong):
    with pytest.raises(ValueError, match="unknown reduction"):
        alone(lambda comm: comm.allreduce(np.zeros(2), wrong))


def test_bad_splits_and_rows():
    def wrong(call, match):
        with pytest.raises(ValueError, match=match):
            alone(call)

    wrong(lambda comm: comm.alltoall(np.zeros(3), [2]), "splits")
    wrong(lambda comm: comm.alltoall(np.zeros(3), [-1]), "splits")
    wrong(lambda comm: comm.alltoall(np.float32(3)), "first dimension")
    wrong(lambda comm: comm.reducescatter(np.float32(3)), "first dimension")
    wrong(lambda comm: comm.allgather(np.zeros(3), rows=[2]), "rows")
    wrong(lambda comm: comm.broadcast(np.zeros(3), root=1), "root")
    wrong(lambda comm: comm.ialltoall(np.zeros(3), splits=[3]), "both")
    wrong(lambda comm: comm.allreduce(np.zeros(3), algorithm="rign"), "no allreduce algorithm.*ring")
    wrong(lambda comm: comm.allreduce(np.zeros(3), wire="int3"), "wire")


# ---- kinds of array that are defined outside of the core -------------------------------------------------------------
class Boxed:
    """An array of a family that neither the core nor NumPy can read."""

    def __init__(self, values):
        self.values = values


class BoxedKind(numpy_kind.NumPyKind):
    @staticmethod
    def source(x):
        return numpy_kind.NumPyKind.source(x.values)._replace(kind=BoxedKind)

    @staticmethod
    def target(x):
        return numpy_kind.NumPyKind.target(x.values)._replace(kind=BoxedKind, given=x)

    @staticmethod
    def describe(array):
        return numpy_kind.NumPyKind.describe(array)._replace(kind=BoxedKind, given=Boxed(array))


def test_kinds_attach_from_outside():
    arrays.register_kind(lambda cls: cls is Boxed, BoxedKind)

    def program(comm):
        x = Boxed(np.arange(4.0) + comm.rank)
        for result in (comm.allreduce(x), comm.iallreduce(x).wait(), comm.broadcast(x), comm.allreduce(x, out=x)):
            assert type(result) is Boxed
        assert result is x
        return x.values.tolist()

    assert threads.run(2, program) == [[1.0, 3.0, 5.0, 7.0]] * 2
    buffer = arrays.source(Boxed(np.ones(3)))
    assert buffer.place is None and buffer.on_host() is buffer


def test_a_tensor_needs_no_import_of_the_binding():
    code = """if True:
        import sys, torch, ringcomm
        assert "ringcomm.torch" not in sys.modules
        (result,) = ringcomm.threads.run(1, lambda comm: comm.allreduce(torch.nn.Parameter(torch.ones(2))))
        assert type(result) is torch.Tensor and result.tolist() == [1, 1]
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
