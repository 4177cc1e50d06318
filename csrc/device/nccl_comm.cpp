// Loads NCCL, and runs the thread that creates and monitors a communicator.
#include "device/nccl_comm.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);

// Ends the process. Calls that have returned will never get their results, and all ranks' streams
// wait for these. No caller is left to receive an exception. Peers detect this rank's end as usual.
[[noreturn]] void end_process(const Nccl& nccl, int error) {
  std::fprintf(stderr,
               "ringcomm: NCCL failed on this rank after calls had returned (%s). Their results are lost, so this "
               "process ends. A peer or its link may have failed; RINGCOMM_GPU_ROUTE=staging avoids NCCL\n",
               nccl.error_text(error));
  std::_Exit(1);
}

const Nccl* find(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return nullptr;
  auto& made = *new Nccl;
  bool all = true;
  const auto load = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    all &= function != nullptr;
  };
  load(made.error_text, "ncclGetErrorString");
#define RINGCOMM_LOAD(name, symbol, parameters) load(made.name, symbol);
  RINGCOMM_NCCL_FUNCTIONS(RINGCOMM_LOAD)
#undef RINGCOMM_LOAD
  return all ? &made : nullptr;
}

}  // namespace

const Nccl* Nccl::load(const std::string& library) {
  static const Nccl* const found = find(library);
  return found;
}

void Nccl::check(int result, const char* what) const {
  if (result != 0) throw Error(ErrorKind::transport, std::string("NCCL failed to ") + what + ": " + error_text(result));
}

NcclComm::NcclComm(const Nccl& nccl, Device& device, const NcclId& id, int size, int rank) : nccl_(nccl) {
  std::thread([&nccl, &device, id, size, rank, state = state_] { live(nccl, device, id, size, rank, state); }).detach();
}

void NcclComm::live(const Nccl& nccl, Device& device, NcclId id, int size, int rank,
                    const std::shared_ptr<State>& state) {
  NcclHandle made = nullptr;
  int result = 1;  // ncclUnhandledCudaError
  try {
    const Device::Current current(device);
    result = nccl.initialise(&made, size, id, rank);
  } catch (const Error&) {  // the driver is lost
  }
  state->failed = result;
  if (result != 0) return;
  state->handle = made;
  while (!state->ending) {
    std::this_thread::sleep_for(kPollEvery);
    int error = 0;
    if (nccl.async_error(made, &error) == 0 && error != 0) end_process(nccl, error);
  }
  nccl.abort(made);  // lets streams that wait for a dead peer continue
}

NcclComm::~NcclComm() { state_->ending = true; }

bool NcclComm::made() const {
  nccl_.check(state_->failed, "create a communicator with the other ranks");
  return state_->handle.load() != nullptr;
}

}  // namespace ringcomm
