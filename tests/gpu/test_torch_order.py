"""Tests that too early reads, writes and frees give wrong numbers under some seed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_device  # noqa: E402
from standin_path import libcuda  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.slow  # tests of the stand-in itself

DEVICE = "standin"


@pytest.fixture(scope="module")
def cuda() -> Any:
    """Returns torch.standin, in the role of torch.cuda."""
    return torch_device.install(libcuda())


@contextmanager
def _seeded(seed: int, delay_us: int = 2000) -> Iterator[None]:
    library = ctypes.CDLL(libcuda())
    library.standin_seed(ctypes.c_uint64(seed))
    library.standin_delay(ctypes.c_long(delay_us))
    try:
        yield
    finally:
        torch.standin.synchronize()
        library.standin_delay(ctypes.c_long(0))


def _behind(cuda: Any, stream: Any, milliseconds: int = 60) -> None:
    """Keeps a stream busy, as the driver allows: operations queued now run late."""
    library = ctypes.CDLL(None)
    cuda.queue.launch(0, stream.cuda_stream, lambda: library.usleep(milliseconds * 1000))


@pytest.mark.parametrize("waits", [True, False])
def test_an_operation_sees_only_what_its_stream_was_made_to_wait_for(cuda: Any, waits: bool) -> None:
    x, side = torch.zeros(4, device=DEVICE), cuda.Stream()
    cuda.synchronize()
    _behind(cuda, side)
    with cuda.stream(side):
        x.add_(1)
    if waits:
        cuda.current_stream().wait_stream(side)
    assert (x * 1).tolist() == [float(waits)] * 4
    cuda.synchronize()


@pytest.mark.parametrize("waits", [True, False])
def test_a_side_stream_reads_old_bytes_of_what_is_not_yet_computed(cuda: Any, waits: bool) -> None:
    x, side = torch.zeros(4, device=DEVICE), cuda.Stream()
    cuda.synchronize()
    _behind(cuda, cuda.current_stream())
    x.add_(1)
    event = cuda.Event()
    event.record()
    if waits:
        side.wait_event(event)
    with cuda.stream(side):
        seen = (x * 1).tolist()
    assert seen == [float(waits)] * 4
    cuda.synchronize()


@pytest.mark.parametrize("recorded", [True, False])
def test_memory_freed_while_a_side_stream_reads_it_shows(cuda: Any, recorded: bool) -> None:
    x, side = torch.ones(4, device=DEVICE), cuda.Stream()
    cuda.synchronize()
    _behind(cuda, side)
    with cuda.stream(side):
        late = x * 1
    if recorded:
        x.record_stream(side)
    address = x.data_ptr()
    del x
    again = torch.full((4,), 5.0, device=DEVICE)
    assert (again.data_ptr() == address) == (not recorded)
    cuda.synchronize()
    assert late.tolist() == [1.0 if recorded else 5.0] * 4


def test_pinned_memory_is_copied_later_and_other_memory_at_once(cuda: Any) -> None:
    pinned, plain, x = torch.zeros(4).pin_memory(), torch.zeros(4), torch.ones(4, device=DEVICE)
    cuda.synchronize()
    _behind(cuda, cuda.current_stream())
    pinned.copy_(x, non_blocking=True)
    assert pinned.tolist() == [0.0] * 4
    plain.copy_(x, non_blocking=True)
    assert plain.tolist() == pinned.tolist() == [1.0] * 4


class Doubling:
    """A model of a binding's work on gradients: hooks record events, a side stream packs."""

    def __init__(self, cuda: Any, parameters: list[Any], without: str | None) -> None:
        self.cuda, self.side, self.without = cuda, cuda.Stream(), without
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.hook)

    def hook(self, parameter: Any) -> None:
        ready = self.cuda.Event()
        ready.record()
        if self.without != "ready":
            self.side.wait_event(ready)
        with self.cuda.stream(self.side):
            parameter.grad.copy_(parameter.grad * 2)  # a separate buffer in between, as a binding has

    def wait(self) -> None:
        if self.without != "done":
            self.cuda.current_stream().wait_stream(self.side)


def _steps(cuda: Any, without: str | None, device: str = DEVICE) -> list[Any]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    doubling = Doubling(cuda, list(model.parameters()), without) if device == DEVICE else None
    for _ in range(3):
        model(torch.randn(5, 6).to(device)).square().sum().backward()
        if doubling is not None:
            doubling.wait()
        else:
            torch._foreach_mul_([p.grad for p in model.parameters()], 2.0)
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


def test_a_binding_that_waits_gives_the_right_weights_under_every_seed(cuda: Any) -> None:
    right = _steps(cuda, None, "cpu")
    for seed in range(10):
        with _seeded(seed):
            for mine, theirs in zip(_steps(cuda, None), right, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("without", ["ready", "done"])
def test_a_binding_that_forgets_a_wait_gives_wrong_weights_under_some_seed(cuda: Any, without: str) -> None:
    right, wrong = _steps(cuda, None, "cpu"), 0
    for seed in range(10):
        with _seeded(seed):
            pairs = zip(_steps(cuda, without), right, strict=True)
            wrong += not all(torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6) for mine, theirs in pairs)
    assert wrong >= 5, wrong
