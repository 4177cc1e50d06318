// Implements calls on device buffers through host memory, as a pipeline over segments.
#include "device/staged_task.hpp"

#include <thread>
#include <utility>

#include "base/short_sleeps.hpp"
#include "collectives/channel.hpp"
#include "device/copy_trace.hpp"
#include "device/placeholder.hpp"
#include "device/side.hpp"
#include "host_collectives/scattered.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSegment = 2 << 20;          // bytes: work on one segment hides the copies of its neighbours
constexpr std::size_t kNetworkSegment = 32 << 20;  // for network calls, which have their own pipeline
constexpr std::size_t kSlots = 3;
constexpr auto kCopyNap = 20us;

// Returns true if the array cannot be segmented: residuals refer to the complete array, as do
// Adasum's scalar products.
bool in_one_piece(const Call& call) {
  return has_blocks(call.collective) || call.op == Op::adasum || (call.wire && !rounds(call.wire)) || call.feedback;
}

class StagedTask final : public Task {
 public:
  StagedTask(Channel& channel, Call call, std::unique_ptr<Copies> copies, bool host_output)
      : channel_(channel), call_(std::move(call)), whole_{call_.input, call_.output, call_.count},
        array_(whole_, call_.fragments, size_of(call_.dtype)), copies_(std::move(copies)), host_output_(host_output),
        reads_(reads()), writes_(!host_output && writes()), trace_(label(), channel.rank(), call_.agreed ? 1 : 0) {
    const std::size_t item = size_of(call_.dtype);
    if (in_one_piece(call_)) {
      in_count_ = in_elements(), out_count_ = out_elements();
      each_ = std::max(in_count_, out_count_);
      segments_ = 1;
    } else {
      in_count_ = out_count_ = call_.count;
      each_ = cut_for(channel.on_one_host() ? kSegment : kNetworkSegment, item);
      segments_ = cuts_in(call_.count, each_);
    }
  }
  ~StagedTask() override { abandon(); }

  Progress advance() override {
    const bool arrived = trace_.look();
    if (done_ == segments_ && slots_) return arrived ? end() : Progress::blocked;
    bool moved = false;
    if (!slots_) {
      slots_ = &DeviceSide::of(channel_).stage.slots(std::min(kSlots, segments_), slot_bytes(), copies_->device());
      moved = true;
    }
    for (;;) {
      const bool step = fetch() || work();
      moved |= step;
      if (done_ == segments_) break;
      if (!step) return moved ? Progress::moved : Progress::blocked;
    }
    // The trace of copies needs their events, so the task waits for them only if events are
    // recorded.
    return trace_.look() ? end() : Progress::blocked;
  }

  void abandon() noexcept override {
    if (std::exchange(ended_, true)) return;
    if (task_) task_->abandon();
    task_.reset();
    if (!copies_->give_up()) DeviceSide::of(channel_).stage.leak();
  }

  void nap(std::chrono::nanoseconds longest) override {
    if (task_) return task_->nap(longest);
    const ShortSleeps precise;  // an ordinary sleep may last longer than a segment's copy
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longest, kCopyNap));
  }

  std::string_view label() const override { return call_.name.empty() ? name_of(call_.collective) : call_.name; }

 private:
  Progress end() {
    copies_->finish();
    ended_ = true;
    return Progress::done;
  }

  bool reads() const { return call_.collective != Collective::broadcast || channel_.rank() == call_.root; }
  bool writes() const {
    if (call_.collective == Collective::reduce) return channel_.rank() == call_.root;
    if (call_.collective == Collective::exscan) return channel_.rank() > 0;
    return call_.collective != Collective::broadcast || !reads_ || call_.input != call_.output;
  }
  std::size_t mine() const { return call_.counts[static_cast<std::size_t>(channel_.rank())]; }
  std::size_t in_elements() const {
    if (!has_blocks(call_.collective)) return call_.count;
    return call_.collective == Collective::allgather ? mine() : total(call_.counts);
  }
  std::size_t out_elements() const {
    if (!has_blocks(call_.collective)) return call_.count;
    if (call_.collective == Collective::reducescatter) return mine();
    return total(call_.collective == Collective::alltoall ? call_.receive_counts : call_.counts);
  }

  std::size_t bytes(std::size_t count) const { return count * size_of(call_.dtype); }
  // Returns the offset of a slot's output. Calls with blocks need separate input and output; other
  // calls work in place.
  std::size_t out_at() const { return has_blocks(call_.collective) ? round_up(bytes(in_count_), kLine) : 0; }
  std::size_t slot_bytes() const {
    return has_blocks(call_.collective) ? out_at() + bytes(out_count_) : bytes(std::min(each_, call_.count));
  }
  Stage::Slot& slot(std::size_t segment) { return (*slots_)[segment % kSlots]; }
  Part part(std::size_t segment, std::size_t count) const {
    return segments_ == 1 ? Part{0, count} : cut_of(count, each_, segment);
  }

  // Starts the copy of the next segment to the host, if a slot is free.
  bool fetch() {
    if (fetched_ == segments_ || fetched_ >= done_ + kSlots) return false;
    const Mark& left = slot(fetched_).left;
    if (left && !left->happened() && !(reads_ && copies_->in_behind(*left))) return false;
    std::byte* const data = slot(fetched_).data;
    if (reads_) {
      array_.each(part(fetched_, in_count_), [&](const Scattered::Piece& piece, std::size_t before) {
        if (piece.count > 0) copies_->in(data + bytes(before), piece.input, bytes(piece.count));
      });
      arrived_[fetched_ % kSlots] = copies_->mark_in();
      trace_.in(arrived_[fetched_ % kSlots], bytes(part(fetched_, in_count_).count));
    }
    ++fetched_;
    return true;
  }

  // Advances the host call on the next segment, and starts the copy of its result to the device.
  bool work() {
    if (!task_) {
      if (done_ == fetched_) return false;
      Mark& arrived = arrived_[done_ % kSlots];
      if (arrived && !arrived->happened()) {
        std::this_thread::yield();  // a query costs driver calls; a peer may need the core meanwhile
        return false;
      }
      arrived.reset();
      task_ = channel_.start(host_call());
      return true;
    }
    const Progress progress = task_->advance();
    if (progress != Progress::done) return progress == Progress::moved;
    task_.reset();
    send_back();
    ++done_;
    return true;
  }

  Call host_call() {
    const Part now = part(done_, in_count_);
    std::byte* const data = slot(done_).data;
    Call call = call_;
    call.fragments.clear();
    call.input = data;
    call.output = host_output_ ? call_.output : data + out_at();
    if (!has_blocks(call_.collective)) call.count = now.count;
    if (done_ > 0) call.agreed = call.is_subcall = true, call.fused_counts.clear();
    if (call_.has_placeholders && computes(call_.collective)) {
      const kernels::Scale pre = std::exchange(call.pre, {});
      if (!pre.identity()) kernels::scale(call.dtype, data, data, now.count, pre);
    }
    return call;
  }

  void send_back() {
    if (!writes_) return;
    const std::byte* const data = slot(done_).data + out_at();
    array_.each(part(done_, out_count_), [&](const Scattered::Piece& piece, std::size_t before) {
      if (piece.count > 0) copies_->out(piece.output, data + bytes(before), bytes(piece.count));
    });
    slot(done_).left = copies_->mark_out();
    trace_.out(slot(done_).left, bytes(part(done_, out_count_).count));
  }

  Channel& channel_;
  const Call call_;
  const Fragment whole_;
  const Scattered array_;
  const std::unique_ptr<Copies> copies_;
  const bool host_output_, reads_, writes_;
  std::size_t in_count_ = 0, out_count_ = 0, each_ = 0, segments_ = 0;
  std::vector<Stage::Slot>* slots_ = nullptr;
  Mark arrived_[kSlots];
  std::size_t fetched_ = 0, done_ = 0;  // segments
  std::unique_ptr<Task> task_;          // on segment done_
  CopyTrace trace_;
  bool ended_ = false;
};

class PlaceholderLocation final : public MemoryLocation {
 public:
  std::unique_ptr<Task> start(Channel& channel, Call call) override {
    return make_staged(channel, std::move(call), host_copies(), false);
  }
  std::shared_ptr<MemoryLocation> together(std::span<const std::shared_ptr<MemoryLocation>>) const override {
    return placeholder_location();
  }
};

}  // namespace

std::unique_ptr<Task> make_staged(Channel& channel, Call call, std::unique_ptr<Copies> copies, bool host_output) {
  return std::make_unique<StagedTask>(channel, std::move(call), std::move(copies), host_output);
}

std::shared_ptr<MemoryLocation> placeholder_location() { return std::make_shared<PlaceholderLocation>(); }

}  // namespace ringcomm
