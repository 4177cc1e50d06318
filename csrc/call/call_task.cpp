#include "call/call_task.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "base/trace.hpp"
#include "call/adasum.hpp"
#include "call/moves.hpp"
#include "memory/memory_pass.hpp"

namespace ringcomm {
namespace {

void put(std::span<char> field, std::string_view text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), field.size() - 1));
}

bool all_equal(const std::vector<std::size_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Without what tells a user's algorithm from another of its name.
std::string_view trace_text(const Choice& choice) {
  return std::string_view(choice.name).substr(0, choice.name.find('#'));
}

constexpr std::uint64_t kUneven = ~std::uint64_t{0};                 // alltoall's count where blocks differ
constexpr std::size_t kLongestSlice = 1 << 20, kMostOnTheirWay = 8;  // bytes, segments: they lie in staging memory

}  // namespace

CallTask::CallTask(Channel& channel, Call&& call)
    : channel_(channel), call_(std::move(call)), begun_ns_(trace().enabled() ? now_ns() : 0) {
  label_ = {call_.name.empty() ? name_of(call_.collective) : std::string_view(call_.name), channel.me_,
            call_.agreed ? 1 : 0, begun_ns_};
}

// A call so small that it has no work after its one wait ended with that.
std::int64_t CallTask::end_ns() const {
  return pass_ && pass_->is_small() && label_.since_ns > begun_ns_ ? label_.since_ns : now_ns();
}

std::uint64_t CallTask::even_row() const {
  const bool even =
      all_equal(call_.counts) && all_equal(call_.receive_counts) && call_.counts[0] == call_.receive_counts[0];
  return even ? call_.counts[0] : kUneven;
}

Descriptor CallTask::describe() const {
  Descriptor mine;
  mine.collective = static_cast<std::uint8_t>(call_.collective);
  mine.dtype = static_cast<std::uint8_t>(call_.dtype);
  mine.op = static_cast<std::uint8_t>(call_.op);
  mine.wire = call_.wire.code();
  mine.root = call_.root;
  mine.count = bytes_of(call_) / size_of(call_.dtype);
  if (call_.collective == Collective::allgather) mine.count = call_.counts[static_cast<std::size_t>(channel_.me_)];
  if (call_.collective == Collective::alltoall) mine.count = even_row();
  mine.shape = call_.shape;
  mine.pre = ScaleBits(call_.pre);
  mine.post = ScaleBits(call_.post);
  put(mine.algorithm, call_.algorithm);
  put(mine.name, call_.name);
  put(mine.shape_text, call_.shape_text);
  return mine;
}

void CallTask::begin() {
  const bool compare_first = !call_.agreed && channel_.config_.check;
  choice_ = &channel_.choose(call_);
  if (channel_.size() == 1) {
    inner_ = move_alone(call_);
    phase_ = Phase::moving;
  } else if (channel_.on_one_host() && (compare_first || on_host())) {
    show();
  } else if (compare_first) {
    exchange();
  } else {
    make_body();
  }
}

// On a host every rank shows its descriptor in its mailbox, and the same arrival opens the pass over memory.
void CallTask::show() {
  Epochs& epochs = *channel_.epochs_;
  const std::size_t parity = epochs.open_call();
  if (on_host()) {
    auto pass = make_memory_pass(epochs, call_, channel_.config_.node_segment_bytes);
    pass->open();
    pass_ = pass.get();
    inner_ = std::move(pass);
  }
  if (!call_.agreed) {
    Mailbox& mine = epochs.mine();
    mine.descriptor[parity] = describe();
    mine.opening[parity].digest = digest_of(mine.descriptor[parity]);
  }
  epoch_ = epochs.publish();
  phase_ = Phase::comparing_shown;
}

void CallTask::exchange() {
  comparison_ = channel_.comparison();
  comparison_->give(digest_of(describe()), choice_->path == Path::gathered ? &call_ : nullptr);
  phase_ = Phase::comparing_sent;
}

// Who left this host may have done so because another left before, whose goodbye is here or on its way.
Progress CallTask::compare_on() {
  constexpr std::int64_t kPatience = 100'000'000;  // ns
  if (!left_) {
    try {
      return comparison_->advance();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::left) throw;
      left_ = error;
      patient_until_ = now_ns() + kPatience;
    }
  }
  channel_.transport_->poll();
  channel_.check_departures();
  if (now_ns() > patient_until_) throw *left_;
  return Progress::blocked;
}

// Calls that are alike in every byte all let their data ride, or none.
void CallTask::compare_sent() {
  if (!comparison_->alike()) return exchange_all();
  if (call_.collective == Collective::alltoall) call_.even = even_row() != kUneven;
  if (choice_->path != Path::gathered) return make_body();
  comparison_->take();
  inner_ = std::make_unique<Finished>();
  phase_ = Phase::moving;
}

void CallTask::exchange_all() {
  all_.resize(static_cast<std::size_t>(channel_.size()));
  all_[static_cast<std::size_t>(channel_.me_)] = describe();
  std::vector<Extent> blocks;
  for (Descriptor& one : all_) blocks.push_back({reinterpret_cast<std::byte*>(&one), sizeof one});
  const auto schedule = schedule_for(Collective::allgather, algorithm_names(Collective::allgather).front(),
                                     channel_.me_, channel_.size());
  inner_ = make_run_schedule(*channel_.transport_, schedule, channel_.peers_,
                             Layout::listed(std::move(blocks), 1, sizeof(Descriptor)), nullptr, channel_.tags_, {});
  phase_ = Phase::comparing_fully;
}

// Every rank has arrived. Only if digests differ are the descriptors themselves worth a look.
void CallTask::compare_shown() {
  Epochs& epochs = *channel_.epochs_;
  const std::size_t parity = epochs.parity();
  if (!call_.agreed) {
    const std::uint64_t digest = epochs.mine().opening[parity].digest;
    bool alike = true;
    for (int rank = 0; rank < channel_.size(); ++rank)
      alike = alike && epochs.mailbox(rank).opening[parity].digest == digest;
    if (!alike) {
      for (int rank = 0; rank < channel_.size(); ++rank) all_.push_back(epochs.mailbox(rank).descriptor[parity]);
      compare();
    } else if (call_.collective == Collective::alltoall) {
      call_.even = epochs.mine().descriptor[parity].count != kUneven;
    }
  }
  if (!pass_) return make_body();
  pass_->begin(epoch_);
  phase_ = Phase::moving;
}

void CallTask::compare() {
  if (const std::string why = disagreement(all_, channel_.everyone()); !why.empty())
    throw Error(ErrorKind::mismatch, why);
  if (call_.collective == Collective::alltoall) {
    call_.even = std::all_of(all_.begin(), all_.end(),
                             [&](const Descriptor& d) { return d.count == all_[0].count && d.count != kUneven; });
  }
}

void CallTask::make_body() {
  phase_ = Phase::moving;
  // the comparison may have told that all blocks are even, or stopped what rode
  choice_ = &channel_.choice(call_);
  if (choice_->path == Path::two_levels) {
    inner_ = two_levels();
    return;
  }
  const MoveContext context{*channel_.transport_, channel_.peers_, channel_.me_, channel_.tags_, channel_.schedules_};
  if (choice_->path == Path::adasum)
    inner_ = move_adasum(context, call_);
  else
    inner_ = move_by_schedule(context, call_, channel_.schedule(call_, *choice_), choice_->cut);
}

std::unique_ptr<Task> CallTask::two_levels() const {
  const Hosts& hosts = channel_.hosts_;
  const Cut cut = choice_->cut;
  // is scaled there
  const bool in_lane = call_.collective == Collective::allreduce || call_.collective == Collective::reduce;
  LaneRun lane{*channel_.transport_, channel_.tags_, channel_.schedules_, *choice_->algorithm, hosts, 0, {}, {}};
  lane.root_host = hosts.host_of(choice_->algorithm->any_root ? choice_->root : call_.root);
  lane.local_root = hosts.local_rank(call_.root);
  lane.segment_bytes = std::min(cut.segment, kLongestSlice) * static_cast<std::size_t>(hosts.lanes());
  const int local = channel_.node_->rank();
  if (local < hosts.lanes()) {
    for (const int rank : hosts.lane(local)) lane.peers.push_back(channel_.peers_[static_cast<std::size_t>(rank)]);
  }
  lane.options = run_options(call_);
  if (in_lane) lane.options.post = call_.post;
  lane.options.window = std::min(cut.window, kMostOnTheirWay);
  channel_.epochs_->open_call();
  return make_two_level(*channel_.epochs_, call_, std::move(lane));
}

Progress CallTask::advance() {
  try {
    return go_on();
  } catch (const Error& error) {
    channel_.end_after(error);
    throw;
  }
}

Progress CallTask::go_on() {
  std::optional<TraceScope> scope;
  // descriptors are not the call's data
  if (trace().enabled() && phase_ != Phase::comparing_fully) scope.emplace(label_);
  switch (phase_) {
    case Phase::begin:
      begin();
      return Progress::moved;
    case Phase::comparing_shown:
      if (!channel_.epochs_->reached(epoch_)) return Progress::blocked;
      compare_shown();
      return Progress::moved;
    case Phase::comparing_sent:
    case Phase::comparing_fully: {
      const Progress progress = phase_ == Phase::comparing_sent ? compare_on() : inner_->advance();
      if (progress == Progress::blocked) channel_.check_departures();
      if (progress != Progress::done) return progress;
      if (phase_ == Phase::comparing_sent) {
        compare_sent();
      } else {
        compare();
        make_body();
      }
      return Progress::moved;
    }
    case Phase::moving: {
      const Progress progress = inner_->advance();
      if (progress == Progress::blocked && !on_host()) channel_.check_departures();
      if (progress == Progress::done && trace().enabled() && begun_ns_ != 0) {
        trace().record("run", label_.name, trace_text(*choice_), begun_ns_, end_ns(), bytes_of(call_), label_.rank,
                       label_.thread);
      }
      return progress;
    }
  }
  return Progress::blocked;
}

void CallTask::abandon() noexcept {
  if (comparison_) comparison_->abandon();
  if (inner_) inner_->abandon();
}

void CallTask::nap(std::chrono::nanoseconds longest) {
  using namespace std::chrono_literals;
  // A host's arrival wakes the sleeper, so it may sleep longer; messages wake nobody.
  const auto patient = std::max<std::chrono::nanoseconds>(longest, 20ms);
  if (phase_ == Phase::comparing_shown) {
    channel_.epochs_->sleep(epoch_, patient.count());
  } else if (phase_ == Phase::comparing_sent && !left_) {
    comparison_->nap(longest);
  } else if (inner_ && !left_) {
    inner_->nap(on_host() ? patient : longest);
  } else {
    std::this_thread::sleep_for(longest);
  }
}

}  // namespace ringcomm
