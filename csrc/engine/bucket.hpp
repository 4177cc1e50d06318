// One verdict to run, as a task: fused tensors are reduced in one call, where they lie if they stay on this host, else
// packed and unpacked; a single one runs where it lies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_bytes.hpp"
#include "base/task.hpp"
#include "call/channel.hpp"
#include "engine/context.hpp"
#include "engine/pending.hpp"

namespace ringcomm {

struct Agreed {
  PendingPtr pending;
  std::vector<std::uint64_t> sizes;  // VerdictItem::sizes
};

// Where fused tensors are packed: in the host's arena if the set has one (then the reduction needs no further copy),
// else in ordinary memory. Kept, and grown to the largest bucket seen.
class FusionBuffer {
 public:
  explicit FusionBuffer(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~FusionBuffer() { release(); }
  FusionBuffer(const FusionBuffer&) = delete;
  FusionBuffer& operator=(const FusionBuffer&) = delete;
  std::byte* at_least(std::size_t nbytes);

 private:
  void release();
  std::shared_ptr<Node> node_;
  std::uint64_t offset_ = kPrivate;
  std::shared_ptr<std::byte[]> heap_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
};

// Does not finish the operations; fills their outputs and counts. `joined`: some rank of the set has joined, and stands
// in for its operations with identities of its own.
std::unique_ptr<Task> make_bucket(const Context& context, Channel& channel, FusionBuffer& buffer,
                                  std::vector<Agreed> parts, bool joined);

}  // namespace ringcomm
