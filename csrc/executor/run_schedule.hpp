// Runs a schedule over a transport: segmented, several instances in flight, receives posted early.
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

// Tags of one ordered stream of instances. All ranks draw in one order: an instance has one tag everywhere.
class TagStream {
 public:
  TagStream(int first, int count) : first_(first), count_(count) {}
  int next() { return first_ + static_cast<int>(drawn_++ % static_cast<std::uint64_t>(count_)); }
  std::uint64_t drawn() const { return drawn_; }
  int count() const { return count_; }
  // Gives half of its tags away, between instances, at the same point of the order on all ranks.
  TagStream halve() {
    const int given = count_ / 2;
    count_ -= given;
    return {first_ + count_, given};
  }

 private:
  int first_, count_;
  std::uint64_t drawn_ = 0;
};

// Makes one buffer of two, which lie where kernels::reduce takes them.
using Combine = std::function<void(void* target, const void* first, const void* second, std::size_t count)>;

struct RunOptions {
  DType dtype = DType::uint8;
  Op op = Op::sum;
  kernels::Scale pre, post;           // applied to each segment (even layouts): before its first round, after its last
  std::size_t window = 4;             // instances in flight
  std::shared_ptr<Codec> codec;       // null: blocks travel as they are
  EncodingCount* encoding = nullptr;  // where what it saves is counted, if anywhere
  std::uint64_t tensor = 0;           // for the codec's keys, as the next
  std::uint32_t call_number = 0;
  // Whether ranks that computed a block themselves, and sent it to nobody, keep of it what the codec would. Not where
  // it does more than round; the schedule has one encoder for each value then (schedule/prove.hpp).
  bool settles = true;
  Combine combine;  // in place of `op`, of whole buffers: needs one block and one segment
  // In a pipeline, null elsewhere: how many segments what comes before has made, which may be opened; and where to say
  // how many are finished.
  const std::size_t* released = nullptr;
  std::size_t* finished = nullptr;
  std::size_t longest_message = kLongestMessage;  // longer ones are cut; all ranks give the same
};

// `peers[i]` is the transport's rank of the schedule's rank i. Draws one tag per segment at construction.
// With a codec every rank ends with what the codec keeps of the result: equal bits, whatever the schedule.
// `source` (even layouts, may be null): the input buffer, copied (and scaled) segment by segment into the layout.
std::unique_ptr<Task> make_run_schedule(Transport& transport, std::shared_ptr<const Schedule> schedule,
                                        std::span<const int> peers, Layout layout, const void* source, TagStream& tags,
                                        RunOptions options);

}  // namespace ringcomm
