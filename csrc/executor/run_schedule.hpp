// Runs a schedule over a transport: in segments, with several instances in flight and receives
// posted early. Channels run collectives between hosts with it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/account.hpp"
#include "base/task.hpp"
#include "codecs/wire_format.hpp"
#include "kernels/kernels.hpp"
#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

// Tags of an ordered stream of instances. All ranks draw tags in the same order, so an instance has
// the same tag on every rank.
class TagStream {
 public:
  TagStream(int first, int count) : first_(first), count_(count) {}
  int next() { return first_ + static_cast<int>(drawn_++ % static_cast<std::uint64_t>(count_)); }
  std::uint64_t drawn() const { return drawn_; }
  int count() const { return count_; }
  // Gives half of the tags to a new stream. All ranks must call it after the same number of draws,
  // while no instance runs.
  TagStream halve() {
    const int given = count_ / 2;
    count_ -= given;
    return {first_ + count_, given};
  }

 private:
  int first_, count_;
  std::uint64_t drawn_ = 0;
};

// Combines two buffers into one, with the aliasing that kernels::reduce permits.
using Combine = std::function<void(void* target, const void* first, const void* second, std::size_t count)>;

struct RunOptions {
  DType dtype = DType::uint8;
  Op op = Op::sum;
  kernels::Scale pre, post;           // applied before and after the rounds of each segment; even layouts only
  std::size_t window = 4;             // instances in flight
  std::shared_ptr<Codec> codec;       // null: blocks are sent unencoded
  EncodingCount* encoding = nullptr;  // counts what encoding saves; may be null
  std::uint64_t tensor = 0;           // for CodecKey, like call_number
  std::uint32_t call_number = 0;
  // If true, a rank that computed a block and sent it to no peer replaces it by the decoded value
  // of its encoding. False if the codec does more than round: the schedule then encodes each value
  // on one rank only (schedule/prove.hpp).
  bool canonicalizes = true;
  Combine combine;  // replaces `op`, for complete buffers: needs one block and one segment
  // For pipelines; null otherwise. `released` points to the number of segments that the previous
  // stage has completed; no other segment is opened. `finished` receives the number of finished
  // segments.
  const std::size_t* released = nullptr;
  std::size_t* finished = nullptr;
  std::size_t longest_message = kLongestMessage;  // longer messages are cut; equal on all ranks
};

// Creates the task. `peers[i]` is the transport's rank of the schedule's rank i. Draws one tag per
// segment at construction.
// With a codec every rank ends with the decoded result, so all ranks have equal bits with every
// schedule.
// `source` (even layouts, may be null) is the input buffer, which is copied (and scaled) segment by
// segment into the layout.
std::unique_ptr<Task> make_run_schedule(Transport& transport, std::shared_ptr<const Schedule> schedule,
                                        std::span<const int> peers, Layout layout, const void* source, TagStream& tags,
                                        RunOptions options);

}  // namespace ringcomm
