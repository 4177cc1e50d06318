"""Tests the stand-in's torch device itself: its results, and the memory locations of its tensors."""

from __future__ import annotations

import copy
import ctypes
import io
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_device  # noqa: E402
from standin_path import libcuda  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.slow  # tests of the stand-in itself

DEVICE = "standin"
Optimizer = Callable[[Any], Any]


@pytest.fixture(scope="module")
def cuda() -> Any:
    """Returns torch.standin, in the role of torch.cuda."""
    return torch_device.install(libcuda())


def _model() -> nn.Module:
    torch.manual_seed(1)
    shapes = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(
        *shapes, nn.Flatten(), nn.Linear(36, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 10)
    )


def _trained(device: str, make: Optimizer, layout: Any = torch.contiguous_format) -> dict[str, Any]:
    model = _model().to(device=device, memory_format=layout)
    optimizer, scaler = make(model.parameters()), torch.amp.GradScaler(device, init_scale=8.0)
    fired: list[Any] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(fired.append)
    for step in range(5):
        images = torch.randn(8, 1, 8, 8).to(device=device, memory_format=layout, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), torch.randint(0, 10, (8,)).to(device))
        scaler.scale(loss if step != 3 else loss * float("inf")).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    assert len(fired) == 5 * len(list(model.parameters()))
    return {name: value.cpu() for name, value in model.state_dict().items()} | {
        "scale": torch.tensor(scaler.get_scale())
    }


def _assert_close(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compares with a tolerance: a convolution's rounding depends on the number of threads."""
    for key, value in theirs.items():
        torch.testing.assert_close(mine[key], value, rtol=1e-5, atol=1e-6, msg=lambda said, key=key: f"{key}: {said}")


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd one by one": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam one by one": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_weights_of_the_cpu(cuda: Any, name: str) -> None:
    _assert_close(_trained(DEVICE, OPTIMIZERS[name]), _trained("cpu", OPTIMIZERS[name]))


def test_sparse_gradients(cuda: Any) -> None:
    results = []
    for device in (DEVICE, "cpu"):
        torch.manual_seed(1)
        words = nn.Embedding(5, 3, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(list(words.parameters()))
        for step in range(3):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            for index in ([1, 2, 2, step], [0, step]):
                words(torch.tensor(index).to(device)).square().sum().backward()
            assert words.weight.grad.is_sparse and words.weight.grad._values().device.type == device
            optimizer.step()
        results.append(words.weight.detach().cpu())
    assert torch.equal(*results)


def test_training_in_channels_last(cuda: Any) -> None:
    layout = torch.channels_last
    _assert_close(_trained(DEVICE, OPTIMIZERS["sgd"], layout), _trained("cpu", OPTIMIZERS["sgd"], layout))


def test_training_on_a_side_stream(cuda: Any) -> None:
    """Tests that backward runs on the stream of the forward, as on CUDA."""
    with cuda.stream(cuda.Stream()) as _:
        mine = _trained(DEVICE, OPTIMIZERS["sgd"])
    _assert_close(mine, _trained("cpu", OPTIMIZERS["sgd"]))


def test_backward_runs_hooks_on_the_streams_of_the_forward(cuda: Any) -> None:
    side, seen = cuda.Stream(), []
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda _: seen.append(cuda.current_stream().cuda_stream))
    with cuda.stream(side):
        side.wait_stream(cuda.default_stream())
        loss = (weight * 2).sum()
    loss.backward()
    weight.grad.add_(1)  # the caller's stream waits for the gradient
    assert weight.grad.tolist() == [3.0] * 3
    assert len(seen) == 1


def test_autocast_takes_the_lower_dtype_where_cuda_does(cuda: Any) -> None:
    model = nn.Linear(4, 3).to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = model(torch.ones(2, 4, device=DEVICE))
        loss = nn.functional.cross_entropy(out, torch.tensor([0, 1], device=DEVICE))
    loss.backward()
    assert (out.dtype, loss.dtype, model.weight.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)


def test_views_share_memory_at_the_right_addresses(cuda: Any) -> None:
    x = torch.arange(24.0, device=DEVICE).reshape(4, 6)
    assert x[1:, 2:].data_ptr() == x.data_ptr() + 8 * 4
    assert x.as_strided((2,), (3,), 5).data_ptr() == x.data_ptr() + 5 * 4
    assert x.untyped_storage().data_ptr() == x.data_ptr() and x.t().data_ptr() == x.data_ptr()
    x[1].mul_(0)
    x.view(-1)[-1:].fill_(7)
    assert x.cpu()[1].tolist() == [0.0] * 6 and x[3, 5].item() == 7
    assert x._version == 2  # autograd counts the writes to views


def test_gradients_are_written_where_the_view_in_a_bucket_is(cuda: Any) -> None:
    bucket = torch.zeros(10, device=DEVICE)
    weight = nn.Parameter(torch.ones(2, 2, device=DEVICE))
    weight.grad = bucket[3:7].view(2, 2)
    for _ in range(2):
        (weight * 3).sum().backward()
    assert bucket.tolist() == [0.0] * 3 + [6.0] * 4 + [0.0] * 3
    torch._foreach_mul_([bucket[:5], bucket[5:]], 0.5)
    assert weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_copies_and_saved_states_live_on_the_device(cuda: Any) -> None:
    model = _model().to(DEVICE)
    twin = copy.deepcopy(model)
    assert twin[0].weight.device.type == DEVICE and twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    with torch.no_grad():
        twin[0].weight.zero_()
    twin.load_state_dict(torch.load(file))
    assert torch.equal(twin[0].weight, model[0].weight)
    file.seek(0)
    assert torch.load(file, map_location="cpu")["0.weight"].device.type == "cpu"


def test_tensors_of_two_places_do_not_mix(cuda: Any) -> None:
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        x.numpy()
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 3


def test_fresh_memory_is_not_zero(cuda: Any) -> None:
    assert torch.empty(1000, device=DEVICE).isnan().all().item()


def test_the_device_module_is_found_from_a_tensor(cuda: Any) -> None:
    x = torch.ones(2, device=DEVICE)
    module = torch.get_device_module(x.device)
    side = module.Stream()
    with module.stream(side):
        assert module.current_stream(x.device).cuda_stream == side.cuda_stream != 0
    assert module.current_stream(x.device).cuda_stream == 0 == module.default_stream().cuda_stream
    assert module.current_stream() == module.ExternalStream(0)
    assert (x.device.index, module.current_device()) == (0, 0) and not module.is_current_stream_capturing()


def test_a_second_device(cuda: Any) -> None:
    if cuda.device_count() < 2:
        pytest.skip("the stand-in has one device")
    x = torch.ones(3, device=f"{DEVICE}:1")
    with cuda.device(1):
        assert torch.zeros(1, device=DEVICE).device == x.device
    assert (x * 2).to(f"{DEVICE}:0").tolist() == [2.0] * 3


def test_what_torch_calls_itself_is_not_counted(cuda: Any) -> None:
    library = ctypes.CDLL(libcuda())
    library.standin_calls.restype = ctypes.c_long
    library.standin_reset_calls()
    (torch.ones(3, device=DEVICE, requires_grad=True) * 2).sum().backward()
    cuda.Stream().wait_stream(cuda.current_stream())
    assert library.standin_calls(b"") == 0


def test_memory_comes_back(cuda: Any) -> None:
    before = cuda.memory_allocated()
    for _ in range(20):
        model = _model().to(DEVICE)
        model(torch.randn(8, 1, 8, 8, device=DEVICE)).sum().backward()
    del model
    cuda.synchronize()
    assert cuda.memory_allocated() <= before


def test_the_host_cannot_read_a_device_address() -> None:
    program = """
import ctypes, sys, torch, torch_device
from standin_path import libcuda
torch_device.install(libcuda())
x = torch.ones(4, device="standin")
assert x.tolist() == [1.0] * 4
print("here", flush=True)
ctypes.string_at(x.data_ptr(), 4)
print("there", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=torch_device.environment(), capture_output=True, text=True
    )
    assert done.stdout.split() == ["here"], done.stderr
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
