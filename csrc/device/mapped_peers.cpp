// Exports this process's device memory and events to peers, and maps theirs.
#include "device/mapped_peers.hpp"

#include <memory>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kMaxPublished = 64;  // allocations that peers keep open
constexpr int kBufferId = 7;               // CUpointer_attribute
constexpr unsigned kLazyPeerAccess = 1;

}  // namespace

MappedPeers::MappedPeers(Device& device, CuStream stream)
    : device_(device), stream_(stream), ready_(make_event()), done_(make_event()) {}

MappedPeers::~MappedPeers() {
  auto left = std::make_shared<std::map<int, Peer>>(std::move(peers_));
  (*left)[-1] = {ready_, done_, {}};  // this rank's own events
  device_.afterwards(stream_, [&device = device_, left] {
    for (auto& [rank, peer] : *left) forget(device, peer);
  });
}

CuEvent MappedPeers::make_event() const {
  CuEvent made = nullptr;
  device_.call("create an event", &Driver::event_create, &made, kCuUntimed | kCuBetweenProcesses);
  return made;
}

IpcAddress MappedPeers::ipc_address(const void* data, std::size_t nbytes) const {
  IpcAddress made;
  if (nbytes == 0) return made;
  const Driver& driver = device_.driver();
  CuPointer base = 0;
  std::size_t size = 0;
  driver.check(driver.memory_range(&base, &size, device_address(data)), "find the allocation of an address");
  driver.check(driver.pointer_attribute(&made.id, kBufferId, base), "return an allocation's id");
  driver.check(driver.ipc_memory_handle(&made.allocation, base), "export memory to other processes");
  made.offset = device_address(data) - base;
  return made;
}

IpcRecord MappedPeers::describe(const void* input, std::size_t input_bytes, const void* output,
                                std::size_t output_bytes) const {
  IpcRecord mine;
  try {
    const Device::Current current(device_);
    const Driver& driver = device_.driver();
    driver.check(driver.ipc_event_handle(&mine.ready, ready_), "export an event to other processes");
    driver.check(driver.ipc_event_handle(&mine.done, done_), "export an event to other processes");
    mine.input = ipc_address(input, input_bytes);
    mine.output = ipc_address(output, output_bytes);
    mine.forget = published_.size() > kMaxPublished;
    const bool all_known = published_events_ && !mine.forget;
    for (const IpcAddress& buffer : {mine.input, mine.output}) {
      if (!all_known || (buffer.id != 0 && !published_.contains(buffer.id))) mine.fresh = 1;
    }
    mine.able = 1;
  } catch (const Error&) {  // for example, memory of a pool has no handle
  }
  return mine;
}

void MappedPeers::mark_published(const IpcRecord& mine) {
  if (!mine.fresh) return;
  if (mine.forget) published_.clear();
  for (const IpcAddress& buffer : {mine.input, mine.output}) {
    if (buffer.id != 0) published_.insert(buffer.id);
  }
  published_events_ = true;
}

bool MappedPeers::open(const std::vector<IpcRecord>& all, int me) {
  try {
    const Device::Current current(device_);
    const Driver& driver = device_.driver();
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
      const IpcRecord& theirs = all[static_cast<std::size_t>(rank)];
      if (rank == me || !theirs.fresh) continue;
      Peer& peer = peers_[rank];
      if (theirs.forget) {
        driver.check(driver.event_synchronize(done_), "wait for work that uses memory of another process");
        forget(device_, peer);
      }
      if (!peer.ready) {
        driver.check(driver.ipc_event_open(&peer.ready, theirs.ready), "open an event of another process");
        driver.check(driver.ipc_event_open(&peer.done, theirs.done), "open an event of another process");
      }
      open_memory(peer, theirs.input);
      open_memory(peer, theirs.output);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

void MappedPeers::open_memory(Peer& peer, const IpcAddress& address) {
  if (address.id == 0 || peer.memory.contains(address.id)) return;
  CuPointer mapped = 0;
  device_.call("map memory of another process", &Driver::ipc_memory_open, &mapped, address.allocation, kLazyPeerAccess);
  peer.memory[address.id] = mapped;
}

void MappedPeers::forget(Device& device, Peer& peer) noexcept {
  device.unless_lost([&, &driver = device.driver()] {
    for (const auto& [id, mapped] : peer.memory) driver.ipc_memory_close(mapped);
    for (const CuEvent event : {peer.ready, peer.done}) {
      if (event) driver.event_destroy(event);
    }
  });
  peer = {};
}

std::byte* MappedPeers::at(int rank, const IpcAddress& address) const {
  if (address.id == 0) return nullptr;
  return reinterpret_cast<std::byte*>(peers_.at(rank).memory.at(address.id) + address.offset);
}

void MappedPeers::record(CuEvent event) { device_.call("record an event", &Driver::event_record, event, stream_); }

void MappedPeers::hold_ready() const {
  for (const auto& [rank, peer] : peers_) device_.hold(stream_, peer.ready);
}

void MappedPeers::hold_done() const {
  for (const auto& [rank, peer] : peers_) device_.hold(stream_, peer.done);
}

}  // namespace ringcomm
