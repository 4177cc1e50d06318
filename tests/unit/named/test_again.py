"""In-place operations under repeated names: the cached path that they take, on 1 to 3 ranks."""

from __future__ import annotations

import mpi_case
import numpy as np
import pytest

import ringcomm
from ringcomm._src.arrays import handles


def short(handle):
    return type(handle) is handles.InPlaceHandle


def total(value, size):
    """Returns the sum of value + rank over the ranks."""
    return size * value + size * (size - 1) // 2


# ---- arrays ----------------------------------------------------------------------------------------------------------
def arrays_again():
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    names, x = [f"gradient {i}" for i in range(50)], np.zeros((50, 3, 4), np.float32)
    for turn in range(4):
        order = np.random.default_rng((turn, rank)).permutation(50)
        x[:] = np.arange(50)[:, None, None] + rank + turn
        started = {i: ringcomm.allreduce_async_(x[i], None, names[i], ringcomm.Sum) for i in order}
        assert all(short(handle) == (turn > 0) for handle in started.values())
        for i, handle in started.items():
            result = ringcomm.synchronize(handle)
            assert handle.test() and handle.wait() is result and np.shares_memory(result, x)
            assert (x[i] == total(i + turn, size)).all(), (turn, i)
    what_changes(rank, size)
    errors(rank, size)
    dropped(rank, size)
    mpi_case.say("fine", rank)
    ringcomm.shutdown()
    with pytest.raises(ValueError, match="init"):
        ringcomm.allreduce_async_(x[0], None, names[0], ringcomm.Sum)
    ringcomm.init()
    handle = ringcomm.allreduce_async_(np.ones(3, np.float32), None, names[0], ringcomm.Sum)
    assert not short(handle) and (handle.wait() == size).all()


def what_changes(rank, size):
    """A known name with another op, scale, dtype, shape or layout is another operation."""
    x = np.zeros(12, np.float32)

    def same(array, expected, **options):
        array[...] = rank + 1
        result = ringcomm.allreduce_async_(array, name="x", **options).wait()
        assert result is array and np.allclose(array.astype(float), expected), (options, array)

    for _ in range(3):
        same(x, total(1, size), op=ringcomm.Sum)
        same(x, size, op=ringcomm.Max)
        same(x, total(1, size) / size)
        same(x, total(1, size) * 2, op=ringcomm.Sum, prescale_factor=2.0)
        same(x, total(1, size) * 0.5, op=ringcomm.Sum, postscale_factor=0.5)
        same(x.reshape(3, 4), total(1, size), op=ringcomm.Sum)
        same(np.zeros(12, np.int32), total(1, size), op=ringcomm.Sum)
        same(np.zeros((12, 2), np.float32)[:, 0], total(1, size), op=ringcomm.Sum)
        same(np.asfortranarray(np.zeros((3, 4), np.float32)), total(1, size), op=ringcomm.Sum)
        with pytest.warns(DeprecationWarning):
            same(x, total(1, size), average=False)
    if size == 1:
        return
    one_set = ringcomm.add_process_set([0])
    for _ in range(2):
        same(x, total(1, size), op=ringcomm.Sum)
        if rank == 0:
            same(x, 1, op=ringcomm.Sum, process_set=one_set)
    ringcomm.remove_process_set(one_set)
    with pytest.raises(ValueError):
        ringcomm.allreduce_async_(x, name="x", op=ringcomm.Sum, process_set=one_set)


def errors(rank, size):
    x = np.ones(12, np.float32)
    ringcomm.allreduce_(x, name="e", op=ringcomm.Sum)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ringcomm.allreduce_(x, name="e", op=ringcomm.Sum)
    x = np.ones(12, np.float32)
    first = ringcomm.allreduce_async_(x, name="e", op=ringcomm.Sum)
    if size > 1:
        y = np.ones(12, np.float32)
        if rank:  # the operation cannot finish before rank 0 has passed the barrier
            second = ringcomm.allreduce_async_(y, name="f", op=ringcomm.Sum)
            with pytest.raises(ValueError, match="in flight"):
                ringcomm.allreduce_async_(y, name="f", op=ringcomm.Sum)
        ringcomm.barrier()
        if rank == 0:
            second = ringcomm.allreduce_async_(y, name="f", op=ringcomm.Sum)
        second.wait()
    first.wait()
    for _ in range(2 if size > 1 else 0):  # rank 1 submits the cached operation, and rank 0 submits another shape
        handle = ringcomm.allreduce_async_(np.ones(12 if rank else 13, np.float32), name="e", op=ringcomm.Sum)
        texts = []
        for _again in range(2):
            with pytest.raises(ringcomm.MismatchError, match="allreduce") as caught:
                handle.wait()
            texts.append(str(caught.value))
        assert texts[0] == texts[1] and handle.test()
        ringcomm.allreduce_(np.ones(12, np.float32), name="e", op=ringcomm.Sum)


def dropped(rank, size):
    """An operation finishes although its handle was dropped; the array lives until then."""
    for _ in range(20):
        ringcomm.allreduce_async_(np.ones(5000, np.float32), name="dropped", op=ringcomm.Sum)
        last = ringcomm.allreduce_async_(np.ones(3, np.float32), name="last", op=ringcomm.Sum)
        while not ringcomm.poll(last):
            pass
        assert (last.wait() == size).all()
        ringcomm.barrier()
    if size > 1 and rank == 0:
        handle = ringcomm.allreduce_async_(np.ones(3, np.float32), name="last", op=ringcomm.Sum)
        with pytest.raises(TimeoutError):
            handle.wait(0.05)
        ringcomm.broadcast_(np.zeros(1), 0, name="go on")
        assert (handle.wait() == size).all()
    elif size > 1:
        ringcomm.broadcast_(np.zeros(1), 0, name="go on")
        ringcomm.allreduce_(np.ones(3, np.float32), name="last", op=ringcomm.Sum)


@pytest.mark.parametrize("size", [0, 2, 3])
def test_arrays(size):
    assert len(mpi_case.run(size, arrays_again).lines("fine")) == max(size, 1)


# ---- tensors ---------------------------------------------------------------------------------------------------------
def tensors_again():
    import torch

    import ringcomm.torch as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    def check(tensor, expected, is_short, **options):
        with torch.no_grad():
            tensor.fill_(rank + 1)
        handle = hvd.allreduce_async_(tensor, **{"name": "t", "op": hvd.Sum, **options})
        assert short(handle) == is_short
        assert hvd.synchronize(handle) is tensor
        assert torch.equal(tensor.detach().float(), torch.full(tensor.shape, float(expected))), tensor

    want = total(1, size)
    for dtype in (torch.float32, torch.bfloat16, torch.half, torch.int64):
        for turn in range(3):
            check(torch.zeros(3, 4, dtype=dtype), want, turn > 0)
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    check(parameter, want, False)
    check(parameter, want, True)
    parameter.data = torch.zeros(3, 4)  # other memory of the same tensor
    check(parameter, want, True)
    parameter.data = torch.zeros(4, 3).t()  # no longer contiguous
    check(parameter, want, False)
    parameter.data = torch.zeros(3, 4, dtype=torch.float64)
    check(parameter, want, False)
    check(torch.zeros(()), want, False)
    check(torch.zeros(()), want, True)
    check(torch.zeros(0), want, False)
    check(torch.zeros(5), want, False)
    check(torch.zeros(5), size, False, op=hvd.Max)
    negative = torch._neg_view(torch.zeros(5))
    check(negative, want, False)
    assert torch.equal(negative, torch.full((5,), float(want)))
    for wrong, error in ((torch.zeros(5, device="meta"), ValueError), (torch.zeros(5).to_sparse(), ValueError)):
        with pytest.raises(error):
            hvd.allreduce_async_(wrong, name="t", op=hvd.Sum)
    with pytest.raises(ValueError):
        hvd.allreduce_async_(torch.zeros(5, dtype=torch.complex32), name="t", op=hvd.Sum)
    mpi_case.say("fine", rank)


def tensors_without_dlpack_again():
    import torch

    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        del torch.Tensor.__dlpack_c_exchange_api__
    tensors_again()


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("program", [tensors_again, tensors_without_dlpack_again])
def test_tensors(size, program):
    assert len(mpi_case.run(size, program).lines("fine")) == max(size, 1)


# ---- join, fork ------------------------------------------------------------------------------------------------------
def joined():
    """A joined rank takes part in other ranks' cached operations; it cannot submit any."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    x = np.ones(4, np.float32)
    for _ in range(3):
        x[:] = 1
        assert (ringcomm.allreduce_(x, name="j", op=ringcomm.Sum) == size).all()
    if rank:
        for _ in range(3):
            x[:] = 1
            assert (ringcomm.allreduce_(x, name="j", op=ringcomm.Sum) == size - 1).all()
    ringcomm.join()
    x[:] = 1
    assert (ringcomm.allreduce_(x, name="j", op=ringcomm.Sum) == size).all()
    mpi_case.say("fine", rank)


def test_join():
    assert len(mpi_case.run(3, joined).lines("fine")) == 3


def forked():
    import os

    ringcomm.init()
    x = np.ones(4, np.float32)
    for _ in range(2):
        ringcomm.allreduce_(x, name="c", op=ringcomm.Sum)
    child = os.fork()
    if child == 0:
        try:
            ringcomm.allreduce_(x, name="c", op=ringcomm.Sum)
        except ringcomm.RingcommError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ringcomm.allreduce_(x, name="c", op=ringcomm.Sum)
    mpi_case.say("fine", ringcomm.rank())


def test_a_forked_child_cannot():
    assert len(mpi_case.run(2, forked).lines("fine")) == 2
