"""A torch device on the stand-in, so that code for torch.cuda runs with a CPU-only torch.

    torch_device.install(standin_path.libcuda())  # then device="standin", and torch.standin is as torch.cuda

Tensors are torch's own, on its PrivateUse1 device; `data_ptr()` and a stream's `cuda_stream` are
the driver's.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch_autocast
from torch_memory import Memory, Queue
from torch_ops import Operations
from torch_sparse import Sparse

NAME = "standin"
PRIVATE_USE = torch._C._autograd.DeviceType.PrivateUse1.value
HERE = Path(__file__).parent
_installed: Any = None


class Stream(torch.Stream):
    """A stream as torch.cuda.Stream: from a pool of the device, unless `which` selects one."""

    def __new__(cls, device: Any = None, priority: int = 0, **which: int) -> Any:
        if which:
            return super().__new__(cls, **which)
        return super().__new__(cls, device=torch.device(NAME, _index(device)), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, as an integer."""
        return self.stream_id


class ExternalStream(Stream):
    """A stream made by other code, given by its handle."""

    def __new__(cls, stream_ptr: int, device: Any = None) -> Any:
        return super().__new__(cls, stream_id=stream_ptr, device_index=_index(device), device_type=PRIVATE_USE)


class Event(torch.Event):
    """An event as torch.cuda.Event."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return super().__new__(
            cls, device=NAME, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    @property
    def cuda_event(self) -> int:
        return self.event_id


class Module:
    """The module torch.standin: the part of torch.cuda that a binding may use."""

    Stream, ExternalStream, Event = Stream, ExternalStream, Event

    def __init__(self, library: Any, memory: Memory, queue: Queue) -> None:
        self._library, self.memory, self.queue = library, memory, queue

    def is_available(self) -> bool:
        return self.device_count() > 0

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return self._library.guard_device_count()

    def current_device(self) -> int:
        return self._library.guard_current_device()

    def set_device(self, device: Any) -> None:
        if (index := _index(device)) >= 0:
            self._library.guard_set_device(index)

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self.set_device(device)
        try:
            yield
        finally:
            self.set_device(before)

    def current_stream(self, device: Any = None) -> Stream:
        index = _index(device)
        return ExternalStream(self._library.guard_current_stream(index), index)

    def default_stream(self, device: Any = None) -> Stream:
        return ExternalStream(0, device)

    def set_stream(self, stream: Stream) -> None:
        self._library.guard_set_stream(stream.device_index, stream.stream_id)

    @contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        before = self.current_stream(stream.device_index)
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)

    def synchronize(self, device: Any = None) -> None:
        self.queue.synchronize(_index(device))

    def is_current_stream_capturing(self) -> bool:
        return bool(self._library.guard_is_capturing())

    def memory_allocated(self, device: Any = None) -> int:
        return self.memory.allocated(_index(device))

    def empty_cache(self) -> None:
        self.memory.release_unused()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    # Random numbers are the CPU's, drawn in the order of the calls, so a seed gives equal weights
    # on both devices.

    def manual_seed(self, seed: int) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_rng_state(self, device: Any = NAME) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = NAME) -> None:
        torch.set_rng_state(state)


def _index(device: Any) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return torch.standin.current_device() if index is None else index  # type: ignore[attr-defined]


def install(driver: str) -> Module:
    """Creates the device in this process, on the driver at this path."""
    global _installed
    if _installed is not None:
        return _installed[0]
    library = _load(_built_guard(Path(driver).parent))
    queue = Queue(library)
    memory = Memory(library, queue)
    calls = (
        ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)(memory.allocate),
        ctypes.CFUNCTYPE(None, ctypes.c_uint64)(memory.free),
        ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int64)(memory.record),
    )
    torch.utils.rename_privateuse1_backend(NAME)
    module = Module(library, memory, queue)
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend()
    queue.succeed(library.guard_start(str(driver).encode(), *calls))
    operations = Operations(NAME, memory, queue), Sparse(NAME), torch_autocast.register(NAME)
    atexit.register(_end, module)
    _installed = module, calls, operations
    return module


def environment() -> dict[str, str]:
    """Returns the variables for a Python process that imports modules of this folder."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}


def _end(module: Module) -> None:
    for device in range(module.device_count()):
        module.synchronize(device)
    module._library.guard_end()


def _built_guard(folder: Path) -> Path:
    """Returns the library of torch_guard/, built if the sources or torch have changed."""
    source = HERE / "torch_guard" / "guard.cpp"
    text = b"".join(path.read_bytes() for path in sorted(source.parent.iterdir()) if path.is_file())
    torch_home = Path(torch.__file__).parent
    key = hashlib.sha256(text + torch.__version__.encode() + str(torch_home).encode()).hexdigest()[:16]
    built = folder / f"torch-guard-{key}.so"
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = Path(folder) / built.name
            flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-isystem", str(torch_home / "include")]
            libraries = [f"-L{torch_home / 'lib'}", "-ltorch_cpu", "-lc10", "-ldl"]
            subprocess.run(["g++", *flags, str(source), "-o", str(made), *libraries], check=True)
            made.replace(built)
    return built


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    integer, wide, pointer = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
    library.guard_current_stream.restype = wide
    library.guard_launch.argtypes = [integer, wide, pointer, pointer]
    library.guard_synchronize.argtypes = [integer, wide]
    library.guard_set_stream.argtypes = [integer, wide]
    library.guard_allocate.argtypes = [integer, ctypes.c_uint64, pointer]
    library.guard_free.argtypes = [integer, ctypes.c_uint64]
    library.guard_host.argtypes, library.guard_host.restype = [ctypes.c_uint64], pointer
    return library
