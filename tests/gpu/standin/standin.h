// Declares controls of the stand-in for tests. libcuda.so.1 exports them besides the driver's
// functions.
//
// Environment, read once by cuInit:
//   STANDIN_DEVICES=N    devices (1); every process sees the same ones
//   STANDIN_MEMORY=MB    memory of each device, counted by each process for itself (8192)
//   STANDIN_HOST=TEXT    part of the devices' uuids: processes with different texts are on different hosts
//   STANDIN_SEED=N       seed of all delays and orders (0), combined with PMI_RANK or OMPI_COMM_WORLD_RANK
//   STANDIN_DELAY_US=N   longest delay of an operation that no call waits for (0: full speed)
//   STANDIN_FAULT=LIST   as for standin_fault
//   STANDIN_IGNORE=LIST  as for standin_ignore
//   STANDIN_KERNELS=PATH library with the C++ form of the kernels; read when a kernel is requested
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct StandinLeaks {  // the number of live objects in this process
  long allocations, streams, events, registrations, opened, modules, pinned, contexts;
};

void standin_seed(std::uint64_t seed);
void standin_delay(long microseconds);

// Sets faults. "alloc:3,launch:1": from now on, the third call of the first kind and the first of
// the second fail; without a number, all calls fail. Null or empty: clears faults and persistent
// errors.
//   alloc, hostalloc   CUDA_ERROR_OUT_OF_MEMORY
//   register           cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED
//   ipc                opening handles: CUDA_ERROR_INVALID_VALUE, as between containers
//   ipc_get            making handles: CUDA_ERROR_NOT_SUPPORTED
//   launch             cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED, and so every later call
//   kernel, copy       likewise, but detected when the n-th kernel (copy) runs
//   lost               the n-th call of any function and all later ones: CUDA_ERROR_DEVICE_UNAVAILABLE
//   nccl_peer          the n-th NCCL operation never ends; ncclCommGetAsyncError returns ncclRemoteError
void standin_fault(const char* list);

// Ignores calls. "cuStreamWaitEvent:3,cuEventRecord:*": from now on, the third call (all calls)
// returns success and does nothing. "cuStreamWaitEvent@2": all calls from the second place in the
// code that calls it.
void standin_ignore(const char* list);

void standin_leaks(StandinLeaks* leaks);
long standin_calls(const char* name);  // calls of a function; "": of all. Names have no _v2
// Counts copies that made their caller wait because of pageable memory: cuMemcpyAsync is not
// asynchronous there.
long standin_pageable_waits();
void standin_reset_calls();
void standin_aside(int on);                  // this thread's calls are not counted, ignored, or failed
long standin_call_places(const char* name);  // number of places in the code that have called it

// Returns the address at which this process may access a device address; null if it is not alive.
// Implies no order.
void* standin_host(const void* address);
void standin_check();                        // aborts if bytes after the end of an allocation were written
void standin_capture(void* stream, int on);  // the stream answers as if it were being captured into a graph
void standin_settle();                       // empties all streams of this process; not counted as a call

// For libnccl.so.2: queues run(data) in the stream's order, after the previous call with the same
// `last`, which is null at first. run() may wait.
int standin_enqueue(void* stream, void (*run)(void*), void* data, void** last);
void standin_forget(void* last);
int standin_stopping();  // the process ends, and waits must return
int standin_stuck();     // the persistent error, or 0
int standin_takes_fault(const char* kind);
void* standin_reach(const void* address, std::size_t nbytes, const char* who);  // aborts outside of live memory
int standin_device_uuid(char* bytes);                                           // uuid of the current context's device
}
