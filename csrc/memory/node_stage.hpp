// Collectives over the arenas of a host. Small buffers ride in the mailboxes, shared arrays are worked on where they
// lie, and others pass through staging memory in segments.
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "node/node.hpp"

namespace ringcomm {

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
// `call` outlives it.
std::unique_ptr<NodeStage> make_node_stage(Epochs& epochs, const Call& call, std::size_t segment_bytes);

}  // namespace ringcomm
