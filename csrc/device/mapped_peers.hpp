// Maps device memory and events of the other processes of a host, from the handles that these
// publish.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "device/device.hpp"

namespace ringcomm {

// Address of a buffer for other processes.
struct IpcAddress {
  CuIpcMemory allocation{};
  std::uint64_t id = 0;  // unique among all allocations of its process; 0: empty buffer
  std::uint64_t offset = 0;
};

// Record that a rank publishes about its buffers and events in a call.
struct IpcRecord {
  IpcAddress input, output;
  CuIpcEvent ready{}, done{};
  std::uint8_t able = 0;    // true if peers can map everything
  std::uint8_t fresh = 0;   // true if peers have to open something
  std::uint8_t forget = 0;  // true if peers may close everything opened before
  std::uint8_t unused[5] = {};
};

class MappedPeers {
 public:
  MappedPeers(Device& device, CuStream stream);  // `stream` does all work on mapped memory
  ~MappedPeers();                                // unmaps after the stream's work
  MappedPeers(const MappedPeers&) = delete;
  MappedPeers& operator=(const MappedPeers&) = delete;

  // Returns this rank's record. It is not `able` if the driver refuses.
  IpcRecord describe(const void* input, std::size_t input_bytes, const void* output, std::size_t output_bytes) const;
  void mark_published(const IpcRecord& mine);  // marks the record as received by all ranks: not fresh any more
  // Opens fresh memory of peers. Returns false if the driver refuses, as between containers.
  bool open(const std::vector<IpcRecord>& all, int me);

  // ---- for opened ranks
  std::byte* at(int rank, const IpcAddress& address) const;  // null if empty
  void record_ready() { record(ready_); }
  void record_done() { record(done_); }
  void hold_ready() const;  // the stream waits until all ranks are ready
  void hold_done() const;

 private:
  struct Peer {
    CuEvent ready = nullptr, done = nullptr;
    std::map<std::uint64_t, CuPointer> memory;  // by allocation
  };
  CuEvent make_event() const;
  IpcAddress ipc_address(const void* data, std::size_t nbytes) const;
  void record(CuEvent event);
  static void forget(Device& device, Peer& peer) noexcept;
  void open_memory(Peer& peer, const IpcAddress& address);

  Device& device_;
  const CuStream stream_;
  CuEvent ready_ = nullptr, done_ = nullptr;  // this rank's events, for its peers
  std::set<std::uint64_t> published_;         // ids of this rank's published allocations
  bool published_events_ = false;
  std::map<int, Peer> peers_;
};

}  // namespace ringcomm
