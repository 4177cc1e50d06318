"""The stand-in through ctypes, for its own tests: calls raise on errors, handles are integers."""

import ctypes
import os
from contextlib import contextmanager
from pathlib import Path

NON_BLOCKING, LEGACY, PER_THREAD = 1, 1, 2
NO_TIMING, INTERPROCESS = 2, 4
NOT_READY, OUT_OF_MEMORY, INVALID_CONTEXT, LAUNCH_FAILED, LOST = 600, 2, 201, 719, 46


class DriverError(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class Leaks(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_long)
        for name in ("allocations", "streams", "events", "registrations", "opened", "modules", "pinned", "contexts")
    ]


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def words(*numbers: int) -> list[ctypes.c_uint64]:
    return [ctypes.c_uint64(number) for number in numbers]


class Driver:
    """The driver: `driver.cuMemFree_v2(address)`. Integers have 64 bits, as the ABI allows."""

    def __init__(self, folder: str | os.PathLike[str], device: int = 0) -> None:
        self.library = ctypes.CDLL(str(Path(folder) / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.library.standin_host.restype = ctypes.c_void_p
        for name in ("standin_calls", "standin_pageable_waits"):
            getattr(self.library, name).restype = ctypes.c_long
        self.cuInit(0)
        self.use(device)

    def __getattr__(self, name: str):
        function = getattr(self.library, name)

        def call(*arguments):
            code = function(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments))
            if code != 0:
                raise DriverError(name, code)

        return call

    def code(self, name: str, *arguments) -> int:
        try:
            getattr(self, name)(*arguments)
        except DriverError as error:
            return error.code
        return 0

    def made(self, name: str, *arguments) -> int:
        out = ctypes.c_uint64(0)
        getattr(self, name)(ctypes.byref(out), *arguments)
        return out.value

    def use(self, device: int = 0) -> None:
        self.context = self.made("cuDevicePrimaryCtxRetain", device)
        self.cuCtxSetCurrent(self.context)

    def alloc(self, size: int) -> int:
        return self.made("cuMemAlloc_v2", size)

    def pinned(self, size: int) -> int:
        return self.made("cuMemHostAlloc", size, 0)

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return self.made("cuStreamCreate", flags)

    def event(self, flags: int = NO_TIMING) -> int:
        return self.made("cuEventCreate", flags)

    def peek(self, address: int, size: int) -> bytes:
        """Returns the present content, in no order with any stream."""
        return ctypes.string_at(self.library.standin_host(ctypes.c_uint64(address)), size)

    def poke(self, address: int, data: bytes) -> None:
        ctypes.memmove(self.library.standin_host(ctypes.c_uint64(address)), data, len(data))

    def calls(self, name: str) -> int:
        return self.library.standin_calls(name.encode())

    def fault(self, text: str = "") -> None:
        self.library.standin_fault(text.encode())

    def ignore(self, text: str = "") -> None:
        self.library.standin_ignore(text.encode())

    def leaks(self) -> dict[str, int]:
        leaks = Leaks()
        self.library.standin_leaks(ctypes.byref(leaks))
        return {name: getattr(leaks, name) for name, _ in Leaks._fields_}

    @contextmanager
    def seeded(self, seed: int, delay_us: int = 60_000_000):
        """Draws orders from `seed`; by default, operations that no call waits for do not run."""
        self.library.standin_seed(ctypes.c_uint64(seed))
        self.library.standin_delay(ctypes.c_long(delay_us))
        try:
            yield
        finally:
            self.library.standin_settle()
            self.library.standin_delay(ctypes.c_long(0))
