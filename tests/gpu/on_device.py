"""The device of ringcomm.torch's cases: the stand-in's, or with TEST_GPU=device a GPU.

Importing this module creates the stand-in's device, which ringcomm treats as CUDA's. To run a case
by hand, put tests/bindings/torch and tests/gpu on PYTHONPATH and the stand-in's path in
RINGCOMM_CUDA_LIBRARY, then:

``mpiexec -n 2 python tests/bindings/torch/run_cases.py cases_torch_ops,cases_torch_training [part
of a name]``
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from standin_path import ON_DEVICE

from ringcomm._src.torch import kind

WAITS = "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"
CYCLES_PER_MILLISECOND = 1_500_000

cuda: Any
driver: Any
if ON_DEVICE:
    DEVICE, cuda, driver = "cuda", torch.cuda, None
    cuda.set_device(
        int(os.environ.get("MPI_LOCALRANKID", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))) % cuda.device_count()
    )
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
else:
    import torch_device

    DEVICE = torch_device.NAME
    cuda = torch_device.install(os.environ["RINGCOMM_CUDA_LIBRARY"])
    kind.DEVICES.add(DEVICE)
    driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
    driver.standin_calls.restype = driver.standin_pageable_waits.restype = ctypes.c_long
    driver.standin_capture.restype = None
    driver.standin_capture.argtypes = [ctypes.c_void_p, ctypes.c_int]
    _sleep = ctypes.CDLL(None).usleep


def only_a_stand_in(case: Callable[[], None]) -> Callable[[], None]:
    """Marks a case that counts or leaves out driver calls."""
    return (lambda: None) if ON_DEVICE else case


def there(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to(DEVICE)


def busy(stream: Any, milliseconds: int = 20) -> None:
    """Occupies the stream, so that its next operations run late."""
    if ON_DEVICE:
        with cuda.stream(stream):
            cuda._sleep(milliseconds * CYCLES_PER_MILLISECOND)
    else:
        cuda.queue.launch(0, stream.cuda_stream, lambda: _sleep(milliseconds * 1000))


def waits() -> int:
    """Returns how often ringcomm has waited for the device so far; 0 on a GPU, where it is unknown."""
    if ON_DEVICE:
        return 0
    return sum(driver.standin_calls(name.encode()) for name in WAITS) + driver.standin_pageable_waits()


def settle() -> None:
    """Waits until the device has finished all its work."""
    cuda.synchronize()
    if not ON_DEVICE:
        driver.standin_settle()


@contextmanager
def capturing() -> Iterator[None]:
    """Captures the current stream into a graph."""
    if ON_DEVICE:
        with cuda.graph(cuda.CUDAGraph()):
            yield
        return
    stream = cuda.current_stream().cuda_stream
    driver.standin_capture(stream, 1)
    try:
        yield
    finally:
        driver.standin_capture(stream, 0)


@contextmanager
def ignoring(calls: str) -> Iterator[None]:
    """Makes the driver calls of this pattern do nothing, for example "cuStreamWaitEvent:*"."""
    driver.standin_ignore(calls.encode())
    try:
        yield
    finally:
        driver.standin_ignore(b"")
