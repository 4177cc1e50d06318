"""The stand-in for the CUDA driver does what the driver's manual says, and notices what a program gets wrong."""

import ctypes
import os
import subprocess
import textwrap

import pytest
from standin.driver import (
    INVALID_CONTEXT,
    LAUNCH_FAILED,
    LEGACY,
    LOST,
    NOT_READY,
    OUT_OF_MEMORY,
    PER_THREAD,
    Driver,
    DriverError,
    Handle,
)
from standin.processes import folder, run, start

SEEDS = range(40)
KERNELS = """
#include <cstddef>
static const void* (*translate)(const void*);
extern "C" void standin_set_translate(const void* (*f)(const void*)) { translate = f; }
extern "C" size_t add_parameter_sizes(size_t* out) { out[0] = 8; out[1] = 8; out[2] = 4; return 3; }
extern "C" void add_host(void** a, unsigned, unsigned) {
  float* x = (float*)translate(*(void**)a[0]);
  const float* y = (const float*)translate(*(void**)a[1]);
  for (int i = 0; i < *(int*)a[2]; ++i) x[i] += y[i];
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    source = library.with_suffix(".cpp")
    source.write_text(KERNELS)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    os.environ["STANDIN_KERNELS"] = str(library)


@pytest.fixture
def driver(kernels):
    driver = Driver(folder())
    before = driver.leaks()
    yield driver
    driver.fault()
    driver.ignore()
    driver.library.standin_settle()
    driver.cuDevicePrimaryCtxRelease_v2(0)
    before["contexts"] = driver.leaks()["contexts"]
    assert driver.leaks() == before


class Bench:
    """Two streams, two allocations: `x` is old until a memset in stream `a` ran."""

    def __init__(self, driver: Driver, flags: int = 1, size: int = 100) -> None:
        self.driver, self.size = driver, size
        self.a, self.b, self.event = driver.stream(flags), driver.stream(flags), driver.event()
        self.x, self.y = driver.alloc(size), driver.alloc(size)
        driver.poke(self.x, b"o" * size)
        driver.poke(self.y, b"?" * size)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.a, self.b):
            self.driver.cuStreamDestroy_v2(stream)
        self.driver.cuEventDestroy_v2(self.event)
        for address in (self.x, self.y):
            self.driver.cuMemFree_v2(address)

    def fill(self, letter: str = "n") -> None:
        self.driver.cuMemsetD8Async(self.x, ord(letter), self.size, self.a)

    def copy(self, stream: int) -> None:
        self.driver.cuMemcpyDtoDAsync_v2(self.y, self.x, self.size, stream)

    def record(self) -> None:
        self.driver.cuEventRecord(self.event, self.a)

    def wait(self) -> None:
        self.driver.cuStreamWaitEvent(self.b, self.event, 0)

    def copied(self, stream: int) -> str:
        self.driver.cuStreamSynchronize(stream)
        return self.driver.peek(self.y, 1).decode()


def outcomes(driver: Driver, trial, seeds=SEEDS, flags: int = 1) -> str:
    letters = []
    for seed in seeds:
        with driver.seeded(seed), Bench(driver, flags) as bench:
            letters.append(trial(bench))
    return "".join(letters)


def across(bench: Bench, wait: bool = True, events: bool = True) -> str:
    bench.fill()
    if events:
        bench.record()
    if wait:
        bench.wait()
    bench.copy(bench.b)
    return bench.copied(bench.b)


def test_what_an_event_orders_is_in_order_and_nothing_else(driver):
    assert set(outcomes(driver, across)) == {"n"}
    unordered = outcomes(driver, lambda bench: across(bench, wait=False))
    assert 10 < unordered.count("o") < 35  # both happen, under many seeds
    assert outcomes(driver, lambda bench: across(bench, wait=False)) == unordered  # and the seed says which


def test_an_overtaken_reader_is_noticed(driver):
    """The other direction: a stream may write before the one that reads has done so."""

    def trial(bench: Bench) -> str:
        bench.copy(bench.b)
        bench.fill()
        driver.cuStreamSynchronize(bench.a)
        return bench.copied(bench.b)

    assert set(outcomes(driver, trial)) == {"o", "n"}


def test_a_stream_is_in_order(driver):
    def trial(bench: Bench) -> str:
        bench.fill("1")
        bench.fill("2")
        bench.copy(bench.a)
        return bench.copied(bench.a)

    assert set(outcomes(driver, trial)) == {"2"}


def test_ignored_waits_are_noticed(driver):
    for text in ("cuStreamWaitEvent:*", "cuStreamWaitEvent@1", "cuEventRecord:*"):
        driver.ignore(text)
        assert "o" in outcomes(driver, across), text
    driver.ignore("cuStreamWaitEvent:2")
    found = outcomes(driver, across, seeds=[seed for s in SEEDS for seed in (s, s)])
    assert "o" not in found[0] + found[2:]
    driver.ignore("cuStreamWaitEvent:1")
    slow = next(s for s in SEEDS if outcomes(driver, lambda b: across(b, wait=False), seeds=[s]) == "o")
    driver.ignore("cuStreamWaitEvent:2")
    assert outcomes(driver, across, seeds=[slow] * 3) == "non"


def test_waiting_takes_the_latest_record_of_that_moment(driver):
    def before_any(bench: Bench) -> str:
        bench.wait()  # of nothing
        bench.fill()
        bench.record()
        bench.copy(bench.b)
        return bench.copied(bench.b)

    def early(bench: Bench) -> str:
        bench.record()
        bench.wait()
        bench.fill()
        bench.record()  # too late for the wait
        bench.copy(bench.b)
        return bench.copied(bench.b)

    def again(bench: Bench) -> str:
        bench.record()
        bench.fill()
        bench.record()
        return across(bench, events=False)

    assert "o" in outcomes(driver, before_any)
    assert "o" in outcomes(driver, early)
    assert set(outcomes(driver, again)) == {"n"}


@pytest.mark.parametrize("default", [0, LEGACY])
def test_the_legacy_stream_and_blocking_streams_wait_for_each_other(driver, default):
    def into(bench: Bench) -> str:
        bench.fill()
        bench.copy(default)
        return bench.copied(default)

    def out_of(bench: Bench) -> str:
        driver.cuMemsetD8Async(bench.x, ord("n"), bench.size, default)
        bench.copy(bench.a)
        return bench.copied(bench.a)

    for trial in (into, out_of):
        assert set(outcomes(driver, trial, flags=0)) == {"n"}
        assert "o" in outcomes(driver, trial, flags=1)


def test_the_stream_of_a_thread_is_a_blocking_one(driver):
    def trial(bench: Bench) -> str:
        driver.cuMemsetD8Async(bench.x, ord("n"), bench.size, PER_THREAD)
        bench.copy(LEGACY)
        return bench.copied(LEGACY)

    assert set(outcomes(driver, trial)) == {"n"}


def test_page_locked_memory_is_read_and_written_when_the_copy_runs(driver):
    host = driver.pinned(100)
    pageable = ctypes.create_string_buffer(100)
    late_reads, late_writes = "", ""
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            ctypes.memset(host, ord("1"), 100)
            driver.cuMemcpyHtoDAsync_v2(bench.x, host, 100, bench.a)
            ctypes.memset(host, ord("2"), 100)
            driver.cuStreamSynchronize(bench.a)
            late_reads += driver.peek(bench.x, 1).decode()
            driver.cuMemcpyDtoHAsync_v2(host, bench.y, 100, bench.a)
            late_writes += ctypes.string_at(host, 1).decode()
            ctypes.memset(pageable, ord("3"), 100)
            driver.cuMemcpyHtoDAsync_v2(bench.x, ctypes.addressof(pageable), 100, bench.b)
            ctypes.memset(pageable, ord("4"), 100)  # has been read
            waits = driver.library.standin_pageable_waits()
            driver.cuMemcpyDtoHAsync_v2(ctypes.addressof(pageable), bench.x, 100, bench.b)
            assert pageable.raw == b"3" * 100  # waits, so that it is here
            assert driver.library.standin_pageable_waits() == waits + 1
    driver.cuMemFreeHost(host)
    assert set(late_reads) == {"1", "2"} and set(late_writes) == {"2", "?"}


def test_registered_memory_is_page_locked_until_it_is_not(driver):
    buffer = ctypes.create_string_buffer(b"1" * 8192)
    at = ctypes.addressof(buffer)
    assert driver.code("cuMemHostUnregister", at) == 713
    driver.cuMemHostRegister_v2(at, 8192, 0)
    assert driver.code("cuMemHostRegister_v2", at + 100, 10, 0) == 712
    assert driver.made("cuMemHostGetDevicePointer_v2", at + 5, 0) == at + 5
    with driver.seeded(0), Bench(driver, size=16384) as bench:
        assert driver.code("cuMemcpyHtoDAsync_v2", bench.x, at + 1, 8192, bench.a) == 1  # past its end
        driver.cuMemcpyHtoDAsync_v2(bench.x, at, 8192, bench.a)
        driver.cuStreamSynchronize(bench.a)
    driver.cuMemHostUnregister(at)


def test_copies_that_wait_and_copies_that_do_not(driver):
    host = ctypes.create_string_buffer(100)
    at = ctypes.addressof(host)
    letters = ""
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver, flags=0) as bench:
            bench.fill()
            driver.cuMemcpyDtoH_v2(at, bench.x, 100)
            assert host.raw == b"n" * 100
            driver.cuMemcpyDtoD_v2(bench.y, bench.x, 100)
            letters += driver.peek(bench.y, 1).decode()  # from device to device none waits
            driver.cuMemcpy(at, bench.y, 100)
            assert host.raw == b"n" * 100
    assert set(letters) == {"?", "n"}


def test_polls_say_not_ready_and_then_ready(driver):
    answers = set()
    for seed in SEEDS:
        with driver.seeded(seed, delay_us=10**6), Bench(driver) as bench:
            bench.fill()
            bench.record()
            for name, what in (("cuEventQuery", bench.event), ("cuStreamQuery", bench.a)):
                code = NOT_READY
                while code == NOT_READY:  # ends: polling lets an operation go, long before its delay
                    code = driver.code(name, what)
                    answers.add(code)
                assert code == 0
    assert answers == {0, NOT_READY}


def test_held_operations_run_though_nobody_waits(driver):
    with driver.seeded(3, delay_us=2000), Bench(driver) as bench:
        bench.fill()
        bench.copy(bench.a)
        while driver.peek(bench.y, 1) != b"n":
            pass


def test_times(driver):
    first, last = driver.event(0), driver.event(0)
    milliseconds = ctypes.c_float(-1)
    with Bench(driver) as bench:
        assert driver.code("cuEventElapsedTime", ctypes.byref(milliseconds), first, last) == 400  # not recorded
        driver.cuEventRecord(first, bench.a)
        bench.fill()
        driver.cuEventRecord(last, bench.a)
        driver.cuEventSynchronize(last)
        driver.cuEventElapsedTime(ctypes.byref(milliseconds), first, last)
        assert milliseconds.value >= 0
        assert driver.code("cuEventElapsedTime", ctypes.byref(milliseconds), first, bench.event) == 400
    for event in (first, last):
        driver.cuEventDestroy_v2(event)


def test_a_destroyed_stream_finishes_what_it_holds(driver):
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            stream = driver.stream()
            driver.cuMemsetD8Async(bench.y, ord("n"), 100, stream)
            driver.cuStreamDestroy_v2(stream)
            driver.cuCtxSynchronize()
            assert driver.peek(bench.y, 1) == b"n"


def test_host_functions_run_in_order_and_may_not_call(driver):
    seen = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    note = kind(lambda _: seen.append((driver.peek(bench.x, 1), driver.code("cuCtxSynchronize"))))
    with driver.seeded(1), Bench(driver) as bench:
        bench.fill()
        driver.cuLaunchHostFunc(bench.a, note, None)
        driver.cuStreamSynchronize(bench.a)
    assert seen == [(b"n", 800)]


def test_kernels(driver):
    module = driver.made("cuModuleLoadData", b"any image")
    assert driver.code("cuModuleGetFunction", ctypes.byref(ctypes.c_uint64()), module, b"missing") == 500
    add = driver.made("cuModuleGetFunction", module, b"add")
    numbers = (ctypes.c_float * 4)(1, 2, 3, 4)
    with driver.seeded(2), Bench(driver) as bench:
        driver.poke(bench.x, bytes(numbers))
        driver.poke(bench.y, bytes(numbers))
        values = [ctypes.c_uint64(bench.x), ctypes.c_uint64(bench.y), ctypes.c_int(4)]
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        driver.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, bench.a, pointers, None)
        values[0].value = values[1].value = 0  # the launch has copied them
        driver.cuStreamSynchronize(bench.a)
        assert list((ctypes.c_float * 4).from_buffer_copy(driver.peek(bench.x, 16))) == [2, 4, 6, 8]
        driver.fault("kernel:1")
        values[0].value, values[1].value = bench.x, bench.y
        driver.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, bench.a, pointers, None)
        assert driver.code("cuStreamSynchronize", bench.a) == LAUNCH_FAILED
        assert driver.code("cuMemGetInfo_v2", None, None) == LAUNCH_FAILED  # it sticks
        driver.fault("launch:1")
        assert driver.code("cuLaunchKernel", add, 1, 1, 1, 32, 1, 1, 0, bench.a, pointers, None) == LAUNCH_FAILED
        driver.fault()
    driver.cuModuleUnload(module)


def test_faults(driver):
    driver.fault("alloc:2,register,hostalloc:1,ipc_get")
    address = driver.alloc(10)
    assert driver.code("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 10) == OUT_OF_MEMORY
    assert driver.code("cuMemHostRegister_v2", address, 10, 0) == 801
    assert driver.code("cuMemHostAlloc", ctypes.byref(ctypes.c_uint64()), 10, 0) == OUT_OF_MEMORY
    assert driver.code("cuIpcGetMemHandle", ctypes.byref(Handle()), address) == 801
    driver.cuMemFree_v2(address)
    driver.fault()
    assert driver.code("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 1 << 40) == OUT_OF_MEMORY


def test_a_lost_device_answers_all_calls_and_holds_nobody(driver):
    for seed in SEEDS:
        driver.fault()
        with driver.seeded(seed), Bench(driver) as bench:
            driver.fault("lost:5")
            codes = [driver.code("cuMemsetD8Async", bench.x, 0, 100, bench.a) for _ in range(8)]
            assert codes == [0] * 4 + [LOST] * 4
            assert driver.code("cuStreamSynchronize", bench.a) == LOST
            assert driver.code("cuMemFree_v2", bench.y) == LOST  # and yet it is given back
            driver.fault()
            bench.y = driver.alloc(100)


def test_a_context_must_be_current(driver):
    driver.cuCtxPushCurrent_v2(driver.context)
    driver.cuCtxSetCurrent(None)
    driver.made("cuCtxPopCurrent_v2")
    assert driver.made("cuCtxGetCurrent") == 0
    for name in ("cuCtxSynchronize", "cuMemFree_v2", "cuStreamCreate"):
        assert driver.code(name, None, 0) == INVALID_CONTEXT
    driver.cuCtxSetCurrent(driver.context)
    assert driver.code("cuStreamSynchronize", 12345) == 400


def test_pointers_say_what_they_are(driver):
    device, host = driver.alloc(100), driver.pinned(100)
    kind = ctypes.c_uint(9)
    for address, expected in ((device + 99, 2), (host + 99, 1)):
        driver.cuPointerGetAttribute(ctypes.byref(kind), 2, address)
        assert kind.value == expected
    assert driver.code("cuPointerGetAttribute", ctypes.byref(kind), 2, device + 100) == 1
    unknown = ctypes.create_string_buffer(8)
    attributes, data = (ctypes.c_int * 1)(2), (ctypes.c_void_p * 1)(ctypes.addressof(kind))
    driver.cuPointerGetAttributes(1, attributes, data, ctypes.addressof(unknown))
    assert kind.value == 0
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), device + 50)
    assert (base.value, size.value) == (device, 100)
    driver.cuMemFreeHost(host)
    driver.cuMemFree_v2(device)


def test_freeing_in_a_streams_order(driver):
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            address = driver.made("cuMemAllocAsync", 100, bench.a)
            driver.cuMemsetD8Async(address, ord("n"), 100, bench.a)
            driver.cuMemcpyDtoDAsync_v2(bench.y, address, 100, bench.a)
            driver.cuMemFreeAsync(address, bench.a)
            assert bench.copied(bench.a) == "n"


def test_capture_is_told_and_refused(driver):
    with Bench(driver) as bench:
        status = ctypes.c_int()
        for on in (1, 0):
            driver.library.standin_capture(ctypes.c_uint64(bench.a), on)
            driver.cuStreamIsCapturing(bench.a, ctypes.byref(status))
            assert status.value == on
            assert driver.code("cuMemsetD8Async", bench.x, 0, 1, bench.a) == (900 if on else 0)


def test_calls_are_counted(driver):
    driver.library.standin_reset_calls()
    driver.cuCtxSynchronize()
    driver.cuMemFree_v2(driver.alloc(10))
    assert (driver.calls("cuCtxSynchronize"), driver.calls("cuMemFree"), driver.calls("")) == (1, 1, 3)


def test_devices_tell_themselves_apart():
    program = """
        ids = []
        for device in range(3):
            uuid = ctypes.create_string_buffer(16)
            driver.cuDeviceGetUuid_v2(uuid, device)
            ids.append(uuid.raw)
        assert driver.code("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_uint64()), 3) == 101
        assert len(set(ids)) == 3
        print(ids)
    """
    same = {run(program, STANDIN_DEVICES=3) for _ in range(2)}
    assert len(same) == 1 and next(iter(same))[0] == 0, same
    assert run(program, STANDIN_DEVICES=3, STANDIN_HOST="other")[1] not in next(iter(same))


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
    "nowhere": ("driver.cuMemsetD8Async(driver.alloc(100) + 500, 0, 1, 0)", "nothing has been allocated"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_programs_die(what):
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
            driver.library.standin_delay(ctypes.c_long(20000))
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
