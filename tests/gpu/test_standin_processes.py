"""Tests the stand-in between processes, and the end of erroneous programs."""

import textwrap

import pytest
from standin.cases import Bench, outcomes
from standin.driver import (
    DriverError,
    Handle,
)
from standin.processes import run, start

KERNEL = """
x, freed = driver.alloc(16), driver.alloc(16)
driver.cuMemFree_v2(freed)
host = ctypes.create_string_buffer(16)
pageable = ctypes.addressof(host)
add = driver.made("cuModuleGetFunction", driver.made("cuModuleLoadData", b"any image"), b"add")
values = [ctypes.c_uint64(x), ctypes.c_uint64({}), ctypes.c_int(4)]
pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
driver.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, pointers, None)
driver.cuCtxSynchronize()
"""

WRONG = {
    "host access": ("ctypes.string_at(driver.alloc(100), 1)", ""),
    "past the end": ("x = driver.alloc(100); driver.cuMemsetD8Async(x + 1, 0, 100, 0)", "past its end"),
    "after a free": (
        "x = driver.alloc(9); driver.cuMemFree_v2(x); driver.cuMemsetD8Async(x, 0, 9, 0)",
        "has been freed",
    ),
    "freed twice": ("x = driver.alloc(9); driver.cuMemFree_v2(x); driver.cuMemFree_v2(x)", "freed twice"),
    "free in another stream's order": (
        """
        with driver.seeded(0, 10**6):
            x, y, a, b = driver.alloc(9), driver.alloc(9), driver.stream(), driver.stream()
            driver.ignore("cuStreamWaitEvent:*")
            driver.library.standin_delay(ctypes.c_long(10**6))
            gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.3))
            driver.cuLaunchHostFunc(a, gate, None)
            driver.cuMemcpyDtoDAsync_v2(y, x, 9, a)
            driver.cuMemFreeAsync(x, b)
            driver.cuStreamSynchronize(b)
            driver.cuStreamSynchronize(a)
        """,
        "has been freed",
    ),
    "unregistered too early": (
        """
        gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.3))
        a, x = driver.stream(), driver.alloc(9)
        host = ctypes.create_string_buffer(9)
        driver.cuMemHostRegister_v2(ctypes.addressof(host), 9, 0)
        driver.cuLaunchHostFunc(a, gate, None)
        driver.cuMemcpyHtoDAsync_v2(x, ctypes.addressof(host), 9, a)
        driver.cuMemHostUnregister(ctypes.addressof(host))
        driver.cuStreamSynchronize(a)
        """,
        "after its page-locked memory",
    ),
    "destroyed stream": (
        "a = driver.stream(); driver.cuStreamDestroy_v2(a); driver.cuStreamSynchronize(a)",
        "destroyed",
    ),
    "written behind the end": ("x = driver.alloc(9); driver.poke(x, b'0' * 10); driver.cuMemFree_v2(x)", "behind"),
    "kernel of freed memory": (KERNEL.format("freed"), "add touches"),
    "kernel of pageable memory": (KERNEL.format("pageable"), "add is given host memory"),
    "nowhere": ("driver.cuMemsetD8Async(driver.alloc(100) + 500, 0, 1, 0)", "nothing has been allocated"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_programs_die(kernels, what):
    program, message = WRONG[what]
    code, _, err = run("import time\n" + textwrap.dedent(program))
    assert code == (-11 if message == "" else -6), err
    assert message in err


def test_a_process_ends_though_operations_are_held():
    code, out, err = run("driver.cuMemsetD8Async(driver.alloc(9), 0, 9, driver.stream())", STANDIN_DELAY_US=10**8)
    assert (code, out, err) == (0, "", "")


def test_peers_share_memory_and_events(driver):
    owner = """
        import sys
        memory, event, stream = driver.alloc(100), driver.event(NO_TIMING | INTERPROCESS), driver.stream()
        handles = [Handle(), Handle()]
        driver.cuIpcGetMemHandle(ctypes.byref(handles[0]), memory + 7)
        driver.cuIpcGetEventHandle(ctypes.byref(handles[1]), event)
        assert driver.code("cuIpcOpenMemHandle_v2", ctypes.byref(ctypes.c_uint64()), handles[0], 1) == 201
        assert driver.code("cuIpcOpenEventHandle", ctypes.byref(ctypes.c_uint64()), handles[1]) == 201
        print(bytes(handles[0]).hex(), bytes(handles[1]).hex(), flush=True)
        for line in sys.stdin:
            if line == "free\\n":
                driver.cuMemFree_v2(memory)
                print("freed", flush=True)
                continue
            driver.library.standin_seed(ctypes.c_uint64(int(line)))
            driver.library.standin_delay(ctypes.c_long(60_000_000))
            driver.poke(memory, b"o" * 100)
            driver.cuMemsetD8Async(memory, ord("n"), 100, stream)
            driver.cuEventRecord(event, stream)
            print("recorded", flush=True)
    """
    with start(owner) as process:
        handles = [Handle.from_buffer_copy(bytes.fromhex(text)) for text in process.stdout.readline().split()]
        memory = driver.made("cuIpcOpenMemHandle_v2", handles[0], 1)
        assert driver.made("cuIpcOpenMemHandle_v2", handles[0], 1) == memory
        driver.cuIpcCloseMemHandle(memory)  # it was opened twice
        event = driver.made("cuIpcOpenEventHandle", handles[1])

        def ask(line: object) -> None:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            assert process.stdout.readline() in ("recorded\n", "freed\n")

        def trial(bench: Bench, wait: bool) -> str:
            ask(len(letters))
            letters.append(" ")
            if wait:
                driver.cuStreamWaitEvent(bench.b, event, 0)
            driver.cuMemcpyDtoDAsync_v2(bench.y, memory, 100, bench.b)
            letters[-1] = bench.copied(bench.b)
            driver.cuEventSynchronize(event)
            return letters[-1]

        letters: list[str] = []
        assert set(outcomes(driver, lambda bench: trial(bench, True))) == {"n"}
        assert "o" in outcomes(driver, lambda bench: trial(bench, False))
        ask("free")
        with pytest.raises(DriverError, match="400"):
            driver.made("cuIpcOpenMemHandle_v2", handles[0], 1)
        driver.cuIpcCloseMemHandle(memory)
        driver.cuEventDestroy_v2(event)
        process.stdin.close()
        assert process.wait(30) == 0, process.stderr.read()
