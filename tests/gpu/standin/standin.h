// Controls of the stand-in for tests; exported by libcuda.so.1 beside the driver's own names.
//
// Environment, read once by cuInit:
//   STANDIN_DEVICES=N    devices (1); every process sees the same ones
//   STANDIN_MEMORY=MB    memory of each device, counted by each process for itself (8192)
//   STANDIN_HOST=TEXT    part of the devices' uuids: processes with different texts are on different hosts
//   STANDIN_SEED=N       what all delays and orders are drawn from (0), with PMI_RANK or OMPI_COMM_WORLD_RANK
//   STANDIN_DELAY_US=N   longest time that an operation nobody waits for is held back (0: streams run at full speed)
//   STANDIN_FAULT=LIST   as for standin_fault
//   STANDIN_IGNORE=LIST  as for standin_ignore
//   STANDIN_KERNELS=PATH library with the C++ form of the kernels; read when a kernel is asked for
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct StandinLeaks {  // what is alive now, in this process
  long allocations, streams, events, registrations, opened, modules, pinned, contexts;
};

void standin_seed(std::uint64_t seed);
void standin_delay(long microseconds);

// "alloc:3,launch:1": the third call of the first kind and the first of the second from now on fail; without a number
// all do. Null or empty: none any more, and an error that had stuck is forgotten.
//   alloc, hostalloc   CUDA_ERROR_OUT_OF_MEMORY
//   register           cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED
//   ipc                opening handles: CUDA_ERROR_INVALID_VALUE, as between containers
//   ipc_get            making handles: CUDA_ERROR_NOT_SUPPORTED
//   launch             cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED, and so every later call
//   kernel, copy       likewise, but found out when the n-th kernel (copy) runs
//   lost               the n-th call of any function and all later ones: CUDA_ERROR_DEVICE_UNAVAILABLE
//   nccl_peer          the n-th NCCL operation never ends, and ncclCommGetAsyncError says ncclRemoteError
void standin_fault(const char* list);

// "cuStreamWaitEvent:3,cuEventRecord:*": the third call (all calls) from now on says success and does nothing.
// "cuStreamWaitEvent@2": all calls from the second place in the code that calls it.
void standin_ignore(const char* list);

void standin_leaks(StandinLeaks* leaks);
long standin_calls(const char* name);  // how often a function was called; "": all of them together. No _v2 in names
// Copies that made their caller wait because of pageable memory: cuMemcpyAsync is not asynchronous there.
long standin_pageable_waits();
void standin_reset_calls();
void standin_aside(int on);  // what this thread calls now is neither counted, nor ignored, nor made to fail by a fault
long standin_call_places(const char* name);  // places in the code that called it so far

// Where this process may read and write a device address itself, null if nothing lives there. No order is implied.
void* standin_host(const void* address);
void standin_check();                        // aborts if bytes behind the end of an allocation have been written
void standin_capture(void* stream, int on);  // the stream answers as if a graph were being captured from it
void standin_settle();                       // all streams of this process run empty; counted as no call

// For libnccl.so.2.
// run(data) in the stream's order, and after what `last`, null at first, was given to before. It may wait.
int standin_enqueue(void* stream, void (*run)(void*), void* data, void** last);
void standin_forget(void* last);
int standin_stopping();  // the process ends: whoever waits lets go
int standin_stuck();     // the error that stuck, or 0
int standin_takes_fault(const char* kind);
void* standin_reach(const void* address, std::size_t nbytes, const char* who);  // aborts outside of live memory
int standin_device_uuid(char* bytes);                                           // of the current context's device
}
