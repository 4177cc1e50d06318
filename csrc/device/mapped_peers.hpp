// Device memory and events of the other processes of a host, as they tell where these are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "device/device.hpp"

namespace ringcomm {

// Where a buffer lies, for others.
struct Lying {
  CuIpcMemory allocation{};
  std::uint64_t id = 0;  // of the allocation, among all that its process has ever had; 0: the buffer is empty
  std::uint64_t offset = 0;
};

// What a rank tells of its part of a call.
struct Whereabouts {
  Lying input, output;
  CuIpcEvent ready{}, done{};
  std::uint8_t able = 0;    // whether others can get at all this
  std::uint8_t fresh = 0;   // whether they have to open something
  std::uint8_t forget = 0;  // whether they may close all that they have opened before
  std::uint8_t unused[5] = {};
};

class MappedPeers {
 public:
  MappedPeers(Device& device, CuStream stream);  // on which all is done with what is mapped
  ~MappedPeers();                                // which ends behind what the stream holds
  MappedPeers(const MappedPeers&) = delete;
  MappedPeers& operator=(const MappedPeers&) = delete;

  // Of this rank's buffers; not `able` where the driver refuses.
  Whereabouts tell(const void* input, std::size_t input_bytes, const void* output, std::size_t output_bytes) const;
  void heard(const Whereabouts& mine);  // by everybody: it is not fresh any more
  // Opens what is fresh. False if the driver refuses, as between containers.
  bool open(const std::vector<Whereabouts>& all, int me);

  // ---- of a rank that has been opened
  std::byte* at(int rank, const Lying& lying) const;  // null: empty
  void record_ready() { record(ready_); }
  void record_done() { record(done_); }
  void hold_ready() const;  // until everybody's are
  void hold_done() const;

 private:
  struct Peer {
    CuEvent ready = nullptr, done = nullptr;
    std::map<std::uint64_t, CuPointer> memory;  // by allocation
  };
  CuEvent make_event() const;
  Lying lying(const void* data, std::size_t nbytes) const;
  void record(CuEvent event);
  static void forget(Device& device, Peer& peer) noexcept;
  void open_memory(Peer& peer, const Lying& lying);

  Device& device_;
  const CuStream stream_;
  CuEvent ready_ = nullptr, done_ = nullptr;  // this rank's, for others
  std::set<std::uint64_t> told_;              // of this rank's allocations
  bool told_events_ = false;
  std::map<int, Peer> peers_;
};

}  // namespace ringcomm
