"""Tests that the stand-in follows the driver's manual: memory, copies, kernels, errors."""

import ctypes

from standin.cases import SEEDS, Bench
from standin.driver import (
    INVALID_CONTEXT,
    LAUNCH_FAILED,
    LOST,
    OUT_OF_MEMORY,
    Handle,
)
from standin.processes import run


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
            assert pageable.raw == b"3" * 100  # the call waited, so the data has arrived
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
            letters += driver.peek(bench.y, 1).decode()  # copies between devices do not wait
            driver.cuMemcpy(at, bench.y, 100)
            assert host.raw == b"n" * 100
    assert set(letters) == {"?", "n"}


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
        assert driver.code("cuMemGetInfo_v2", None, None) == LAUNCH_FAILED  # the error persists
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
            assert driver.code("cuMemFree_v2", bench.y) == LOST  # the memory is released all the same
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


def test_a_released_context_is_destroyed():
    """Runs in a separate process, in which no other code holds the context."""
    status, out, err = run("""
        driver.cuDevicePrimaryCtxRelease_v2(0)
        assert driver.code("cuCtxSynchronize") == 709
        driver.use(0)
        driver.cuCtxSynchronize()
    """)
    assert status == 0, out + err


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
