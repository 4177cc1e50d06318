"""The stand-in's torch device, for cases of ringcomm.torch. Imported, it is there, and ringcomm takes it for CUDA's.

By hand, with tests/bindings/torch and tests/gpu on PYTHONPATH and the stand-in's path in RINGCOMM_CUDA_LIBRARY:
``mpiexec -n 2 python tests/bindings/torch/run_cases.py cases_torch_ops,cases_torch_training [part of a name]``
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch_device

from ringcomm._src.torch import kind

DEVICE = torch_device.NAME
WAITS = "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"
cuda = torch_device.install(os.environ["RINGCOMM_CUDA_LIBRARY"])
kind.DEVICES.add(DEVICE)
driver = ctypes.CDLL(os.environ["RINGCOMM_CUDA_LIBRARY"])
driver.standin_calls.restype = driver.standin_pageable_waits.restype = ctypes.c_long
driver.standin_capture.restype = None
driver.standin_capture.argtypes = [ctypes.c_void_p, ctypes.c_int]
_sleep = ctypes.CDLL(None).usleep


def there(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to(DEVICE)


def busy(stream: Any, milliseconds: int = 20) -> None:
    """What the stream is given next comes later."""
    cuda.queue.launch(0, stream.cuda_stream, lambda: _sleep(milliseconds * 1000))


def waits() -> int:
    """How often ringcomm has waited for the device here so far."""
    return sum(driver.standin_calls(name.encode()) for name in WAITS) + driver.standin_pageable_waits()


@contextmanager
def ignoring(calls: str) -> Iterator[None]:
    """Calls of the driver that do nothing: "cuStreamWaitEvent:*"."""
    driver.standin_ignore(calls.encode())
    try:
        yield
    finally:
        driver.standin_ignore(b"")
