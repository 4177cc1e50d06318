// Exports this process's device memory and events to peers, and maps theirs.
#include "device/mapped_peers.hpp"

#include <memory>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kMostTold = 64;  // allocations that peers keep open
constexpr int kBufferId = 7;           // CUpointer_attribute
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
  device_.call("make an event", &Driver::event_create, &made, kCuUntimed | kCuBetweenProcesses);
  return made;
}

Lying MappedPeers::lying(const void* data, std::size_t nbytes) const {
  Lying made;
  if (nbytes == 0) return made;
  const Driver& driver = device_.driver();
  CuPointer base = 0;
  std::size_t size = 0;
  driver.check(driver.memory_range(&base, &size, device_address(data)), "tell where memory begins");
  driver.check(driver.pointer_attribute(&made.id, kBufferId, base), "tell an allocation's number");
  driver.check(driver.ipc_memory_handle(&made.allocation, base), "let other processes map memory");
  made.offset = device_address(data) - base;
  return made;
}

Whereabouts MappedPeers::tell(const void* input, std::size_t input_bytes, const void* output,
                              std::size_t output_bytes) const {
  Whereabouts mine;
  try {
    const Device::Current current(device_);
    const Driver& driver = device_.driver();
    driver.check(driver.ipc_event_handle(&mine.ready, ready_), "let other processes wait for an event");
    driver.check(driver.ipc_event_handle(&mine.done, done_), "let other processes wait for an event");
    mine.input = lying(input, input_bytes);
    mine.output = lying(output, output_bytes);
    mine.forget = told_.size() > kMostTold;
    const bool all_known = told_events_ && !mine.forget;
    for (const Lying& one : {mine.input, mine.output}) {
      if (!all_known || (one.id != 0 && !told_.contains(one.id))) mine.fresh = 1;
    }
    mine.able = 1;
  } catch (const Error&) {  // such as memory of a pool, which has no handle
  }
  return mine;
}

void MappedPeers::heard(const Whereabouts& mine) {
  if (!mine.fresh) return;
  if (mine.forget) told_.clear();
  for (const Lying& one : {mine.input, mine.output}) {
    if (one.id != 0) told_.insert(one.id);
  }
  told_events_ = true;
}

bool MappedPeers::open(const std::vector<Whereabouts>& all, int me) {
  try {
    const Device::Current current(device_);
    const Driver& driver = device_.driver();
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
      const Whereabouts& one = all[static_cast<std::size_t>(rank)];
      if (rank == me || !one.fresh) continue;
      Peer& peer = peers_[rank];
      if (one.forget) {
        driver.check(driver.event_synchronize(done_), "end what uses memory of another process");
        forget(device_, peer);
      }
      if (!peer.ready) {
        driver.check(driver.ipc_event_open(&peer.ready, one.ready), "open an event of another process");
        driver.check(driver.ipc_event_open(&peer.done, one.done), "open an event of another process");
      }
      open_memory(peer, one.input);
      open_memory(peer, one.output);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

void MappedPeers::open_memory(Peer& peer, const Lying& lying) {
  if (lying.id == 0 || peer.memory.contains(lying.id)) return;
  CuPointer mapped = 0;
  device_.call("map memory of another process", &Driver::ipc_memory_open, &mapped, lying.allocation, kLazyPeerAccess);
  peer.memory[lying.id] = mapped;
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

std::byte* MappedPeers::at(int rank, const Lying& lying) const {
  if (lying.id == 0) return nullptr;
  return reinterpret_cast<std::byte*>(peers_.at(rank).memory.at(lying.id) + lying.offset);
}

void MappedPeers::record(CuEvent event) { device_.call("record an event", &Driver::event_record, event, stream_); }

void MappedPeers::hold_ready() const {
  for (const auto& [rank, peer] : peers_) device_.hold(stream_, peer.ready);
}

void MappedPeers::hold_done() const {
  for (const auto& [rank, peer] : peers_) device_.hold(stream_, peer.done);
}

}  // namespace ringcomm
