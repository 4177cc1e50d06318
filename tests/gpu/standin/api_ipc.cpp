// Implements handles of memory and events for other processes.
#include <cstring>

#include "context.hpp"
#include "memory.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

Ticket read(const char* bytes) {
  Ticket ticket;
  std::memcpy(&ticket, bytes, sizeof ticket);
  return ticket;
}

void write(char* bytes, const Ticket& ticket) {
  std::memset(bytes, 0, sizeof(CUipcMemHandle));
  std::memcpy(bytes, &ticket, sizeof ticket);
}

}  // namespace

STANDIN_API CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  STANDIN_ENTER(context);
  if (Settings::get().takes_fault("ipc_get")) return CUDA_ERROR_NOT_SUPPORTED;
  Ticket ticket;
  const CUresult result = Memory::get().ticket(address, &ticket);
  if (result == CUDA_SUCCESS) write(handle->reserved, ticket);
  return result;
}

STANDIN_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  STANDIN_ENTER(context);
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (Settings::get().takes_fault("ipc")) return CUDA_ERROR_INVALID_VALUE;
  return Memory::get().open(read(handle.reserved), address);
}

STANDIN_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  STANDIN_ENTER(release);
  const CUresult result = Memory::get().close(address);
  return result != CUDA_SUCCESS ? result : Settings::get().stuck();
}

STANDIN_API CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  STANDIN_ENTER(context);
  if (Settings::get().takes_fault("ipc_get")) return CUDA_ERROR_NOT_SUPPORTED;
  const auto found = event_handles().find(event);
  if (found == nullptr || found->slot == nullptr || found->opened) return CUDA_ERROR_INVALID_HANDLE;
  Ticket ticket;
  Memory::get().event_ticket(found->slot, &ticket);
  write(handle->reserved, ticket);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  STANDIN_ENTER(context);
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Settings::get().takes_fault("ipc")) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Event>();
  made->context = current_context();
  made->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  made->opened = true;
  const CUresult result = Memory::get().open_event(read(handle.reserved), &made->slot);
  if (result == CUDA_SUCCESS) *event = event_handles().add(std::move(made));
  return result;
}
