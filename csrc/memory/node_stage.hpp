// Collectives over the arenas of a host. Small buffers ride in the mailboxes, shared arrays are worked on where they
// lie, and others pass through staging memory in segments.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/task.hpp"
#include "kernels/kernels.hpp"
#include "memory/fragments.hpp"
#include "node/node.hpp"

namespace ringcomm {

// What one rank asks of its host. Fields as in Call (call/call.hpp); op is never average.
struct NodeCall {
  Collective collective = Collective::allreduce;
  DType dtype = DType::uint8;
  Op op = Op::sum;
  int root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  std::vector<std::size_t> counts, receive_counts;
  kernels::Scale pre, post;
  std::size_t segment_bytes = 256 << 10;
  // where the array lies, if it is more than rides in mailboxes; empty: in input and output
  std::vector<Fragment> fragments;
  std::vector<int> absent;  // sorted; ranks without arrays. They reduce a slice like the others, of what these give

  bool gives(int rank) const { return !std::binary_search(absent.begin(), absent.end(), rank); }
};

// One call. Every rank opens it, arrives (Epochs::publish), and begins it once all have arrived and agree.
class NodeStage : public Task {
 public:
  virtual ~NodeStage() = default;
  // Before the arrival: puts what peers will read where they can read it.
  virtual void open() = 0;
  // After everybody's arrival `epoch`: all openings and payloads are there.
  virtual void begin(std::uint32_t epoch) = 0;
  virtual bool is_small() const { return false; }  // all its data rides in the mailboxes
};

// For a call that follows Epochs::open_call(). Which way the data goes is agreed when the call begins.
std::unique_ptr<NodeStage> make_node_stage(Epochs& epochs, NodeCall call);

}  // namespace ringcomm
