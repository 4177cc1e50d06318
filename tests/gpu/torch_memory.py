"""The memory of the stand-in's torch device: an allocator like torch.cuda's in the worst case.

A freed block returns only to the stream that it was allocated on, and is the first to be allocated
again there. It is overwritten with 0xFF (a NaN in every float dtype) in that stream's order. A late
read on another stream, without `record_stream`, therefore reads NaNs. Small tensors share segments,
so that an address is rarely the start of a driver allocation.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

SMALL = 1 << 20  # bytes; smaller blocks are parts of shared segments
SEGMENT = 2 << 20
ALIGNMENT = 512


class Block:
    """A block of device memory of the requested size, rounded up; `bytes` is the host's view of it."""

    def __init__(self, device: int, stream: int, address: int, nbytes: int, host: int) -> None:
        self.device, self.stream, self.address, self.nbytes = device, stream, address, nbytes
        self.bytes = torch.frombuffer((ctypes.c_char * nbytes).from_address(host), dtype=torch.uint8)
        self.used_on: set[int] = set()


class Queue:
    """Python functions in stream order; the next call that waits raises their errors."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self._waiting: dict[int, Callable[[], None]] = {}
        self._over: list[int] = []  # the next launch frees the objects that they hold, which may call the driver
        self._numbers = itertools.count(1)
        self._errors: list[BaseException] = []
        self._here = threading.local()
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._call)

    def _call(self, number: int) -> None:
        self._here.stream = True
        try:
            with torch.no_grad():
                self._waiting[number]()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._here.stream = False
            self._over.append(number)

    def on_stream(self) -> bool:
        """Returns whether a stream's function runs on this thread, which may not call the driver."""
        return getattr(self._here, "stream", False)

    def launch(self, device: int, stream: int, function: Callable[[], None]) -> None:
        number = next(self._numbers)
        self._waiting[number] = function
        over, self._over = self._over, []
        for one in over:
            del self._waiting[one]
        self.succeed(self.library.guard_launch(device, stream, self._run, number))

    def synchronize(self, device: int, stream: int | None = None) -> None:
        """Waits for a stream, or for all streams of a device."""
        if stream is None:
            self.succeed(self.library.guard_synchronize_device(device))
        else:
            self.succeed(self.library.guard_synchronize(device, stream))

    def succeed(self, error: int) -> None:
        if self._errors:
            raise RuntimeError("an operation failed on the stand-in device") from self._errors.pop(0)
        if error:
            raise RuntimeError(f"the driver gave error {error}")


class Memory:
    def __init__(self, library: Any, queue: Queue) -> None:
        self._library, self._queue = library, queue
        self._lock = threading.RLock()  # a garbage collection may free memory during an allocation
        self._free: dict[tuple[int, int, int], list[Block]] = collections.defaultdict(list)
        self._segments: dict[tuple[int, int], tuple[int, int]] = {}  # the next address and the end
        self._late: list[tuple[set[int], Block]] = []  # freed, but in use on these other streams
        self._unmarked: list[Block] = []  # freed by a garbage collection on a stream's thread
        self.live: dict[int, Block] = {}

    def allocate(self, device: int, nbytes: int) -> int:
        """Returns the address of memory for the device's current stream, or 0."""
        try:
            with self._lock:
                self._take_back_late()
                stream = self._library.guard_current_stream(device)
                width = _rounded(nbytes)
                free = self._free[device, stream, width]
                block = free.pop() if free else self._new(device, stream, width)
                self.live[block.address] = block
                return block.address
        except RuntimeError:
            return 0

    def free(self, address: int) -> None:
        with self._lock:
            self._unmarked.append(self.live.pop(address))
            if not self._queue.on_stream():
                self._take_back_unmarked()

    def record(self, address: int, stream: int) -> None:
        """Performs `Tensor.record_stream`: a stream's present operations use this storage."""
        self.live[address].used_on.add(stream)

    def block_of(self, tensor: torch.Tensor) -> Block:
        return self.live[tensor.untyped_storage().data_ptr()]

    def host_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a CPU tensor over a device tensor's memory, to which no operation may write."""
        storage = self.block_of(tensor).bytes.untyped_storage()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    def allocated(self, device: int) -> int:
        with self._lock:
            return sum(block.nbytes for block in self.live.values() if block.device == device)

    def release_unused(self) -> None:
        """Returns unused memory with a separate allocation to the driver."""
        with self._lock:
            self._take_back_late()
            for (device, stream, width), blocks in self._free.items():
                if width < SMALL or not blocks:
                    continue
                self._queue.synchronize(device, stream)
                while blocks:
                    self._queue.succeed(self._library.guard_free(device, blocks.pop().address))

    def _take_back_unmarked(self) -> None:
        while self._unmarked:
            block = self._unmarked.pop()
            others, block.used_on = block.used_on - {block.stream}, set()
            if not others:
                self._take_back(block)
                continue
            self._late.append((others, block))
            for stream in list(others):  # no events: polling them would advance the stand-in's streams
                self._queue.launch(block.device, stream, partial(others.discard, stream))

    def _take_back_late(self) -> None:
        self._take_back_unmarked()
        late, self._late = self._late, []
        for others, block in late:
            if others:
                self._late.append((others, block))
            else:
                self._take_back(block)

    def _take_back(self, block: Block) -> None:
        with contextlib.suppress(RuntimeError):  # other calls report a lost driver
            self._queue.launch(block.device, block.stream, lambda: _spoil(block))
        self._free[block.device, block.stream, block.nbytes].append(block)

    def _new(self, device: int, stream: int, width: int) -> Block:
        if width >= SMALL:
            address = self._driver_memory(device, width)
        else:
            address, end = self._segments.get((device, stream), (0, 0))
            if address + width > end:
                address = self._driver_memory(device, SEGMENT)
                end = address + SEGMENT
            self._segments[device, stream] = address + width, end
        block = Block(device, stream, address, width, self._library.guard_host(address))
        _spoil(block)
        return block

    def _driver_memory(self, device: int, nbytes: int) -> int:
        address = ctypes.c_uint64()
        self._queue.succeed(self._library.guard_allocate(device, nbytes, ctypes.byref(address)))
        return address.value


def _rounded(nbytes: int) -> int:
    if nbytes >= SMALL:
        return -(-nbytes // SEGMENT) * SEGMENT
    return max(ALIGNMENT, 1 << (nbytes - 1).bit_length()) if nbytes else ALIGNMENT


def _spoil(block: Block) -> None:
    block.bytes.fill_(0xFF)
