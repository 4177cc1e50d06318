// Implements the check by messages. It compares digests. If digests differ, or the counts of an
// all-to-all disagree, it exchanges descriptors. If ranks of a host share memory, their first rank
// is the leader and sends for all of them. Otherwise every rank is its own leader.
//
//   every rank                           leader                             every rank
//   publishes digest and payload    →    collects them; sends its host's
//                                        piece (reduced already, if the
//                                        call computes) to other leaders,
//                                        and publishes the verdict and
//                                        all hosts' pieces             →    collects these
//
// A rank arrives twice in its host's memory: when it publishes, and when the verdict is there. Only
// the leader's second arrival carries information, so the other ranks make theirs immediately.
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/clock.hpp"
#include "collectives/consistency/consistency_check.hpp"
#include "collectives/consistency/describe.hpp"
#include "collectives/consistency/piece_exchange.hpp"
#include "host_collectives/payload.hpp"
#include "schedule/registry.hpp"

namespace ringcomm {
namespace {

// The leader scratch has two slots, for even and for odd calls, like the mailboxes
// (shm/mailbox.hpp). In each slot every rank stores its payload, and the leader the check's result.
constexpr std::size_t kVerdict = 64;
constexpr std::size_t kPieces = kPayloadsTogether + kMostPayloads * kPieceAlign;
constexpr std::size_t kSlot = kLongestPiece + kVerdict + kPieces;

constexpr std::size_t padded(std::size_t nbytes) { return round_up(nbytes, kPieceAlign); }

// Returns hosts by group rank, with each rank on a different host.
std::vector<int> one_rank_per_host(int ranks) {
  std::vector<int> hosts(static_cast<std::size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

class MessageConsistencyCheck final : public ConsistencyCheck {
 public:
  MessageConsistencyCheck(CallContext& context, const InlineLimits& most)
      : context_(context), epochs_(context.hosts.number() > 1 ? context.epochs.get() : nullptr),
        hosts_(epochs_ ? context.hosts : Hosts(one_rank_per_host(context.size()), context.me)) {
    if (epochs_) reserve_leader_scratch(*context.node, epochs_->slot());
    if (!leads()) return;
    std::size_t ranks = 0;
    for (int host = 0; host < hosts_.number(); ++host) ranks = std::max(ranks, hosts_.of(host).size());
    for (const int rank : hosts_.lane(0)) leaders_.push_back(context.peers[static_cast<std::size_t>(rank)]);
    between_.emplace(*context.transport, leaders_, hosts_.mine(),
                     std::max(padded(most.reduced), ranks * padded(most.moved)));
  }

  void begin(Call& call, bool inline_data) override {
    call_ = &call;
    inline_data_ = inline_data;
    looks_ = 0;
    host_is_here_ = between_hosts_ = false;
    left_.reset();
    records_.reset();
    counts_.clear();
    tag_ = context_.tags.next();
    const Descriptor mine = describe(call, context_.me);
    digest_ = digest_of(mine);
    balance_ = static_cast<std::uint32_t>(mine.balance);
    if (epochs_) publish();
  }

  Progress advance() override {
    const Progress progress = records_ ? records_->advance() : exchange_digests();
    if (progress == Progress::blocked) context_.departures.check();
    if (progress != Progress::done) return progress;
    if (!counts_.empty()) throw counts_mismatch(*call_, all_, counts_);
    if (!records_ && equal()) {
      conclude(*call_);
      return Progress::done;
    }
    if (!records_) {
      exchange_descriptors();
    } else if (conclude(*call_, all_)) {
      return Progress::done;
    } else {
      exchange_counts();
    }
    return Progress::moved;
  }

  std::unique_ptr<Task> collect() override {
    if (!inline_data_ || records_) return nullptr;
    collect_data();
    return std::make_unique<Finished>();
  }

  void abandon() noexcept override {
    if (between_) between_->abandon();
    if (records_) records_->abandon();
  }

  // An arrival wakes the sleeper; a message does not.
  void nap(std::chrono::nanoseconds longest) override {
    if (!epochs_ || host_is_here_ || left_) return Task::nap(longest);
    epochs_->sleep(epoch_, patient(longest).count());
  }

 private:
  // ---- inside a host
  // `epoch`: the leader's arrival that published the verdict. A leader that abandons a call
  // publishes no verdict, but still arrives at its next call.
  struct Verdict {
    std::uint32_t epoch, equal;
  };
  bool leads() const { return !epochs_ || epochs_->node().rank() == 0; }
  std::byte* payload(int local) const {
    return epochs_->node().at(local, epochs_->mailbox(local).leader_scratch) + slot_ * kSlot;
  }
  Verdict* verdict() const { return reinterpret_cast<Verdict*>(payload(0) + kLongestPiece); }
  std::byte* published_pieces() const { return payload(0) + kLongestPiece + kVerdict; }

  void publish() {
    slot_ = epochs_->open_call();
    if (inline_data_) epochs_->copied += publish_payload(*call_, context_.me, payload(epochs_->node().rank()));
    epochs_->header().digest = digest_;
    epochs_->mine().descriptor[slot_].balance = balance_;
    epoch_ = epochs_->publish();
    if (!leads()) epoch_ = epochs_->publish();
  }

  // Returns whether all ranks of the host have published and, on ranks other than the leader,
  // whether the verdict is there.
  bool host_has_arrived() {
    host_is_here_ = epochs_->reached(epoch_);
    return host_is_here_ && (leads() || verdict()->epoch == epoch_);
  }

  // Waits for ranks of this host, which usually arrive within a few polls. Messages report
  // departures, but polling the transport costs more, so it starts after 64 polls.
  Progress look_around() {
    if (looks_ < 64) return ++looks_, Progress::blocked;
    return context_.transport->poll() ? Progress::moved : Progress::blocked;
  }

  void publish_verdict() {
    *verdict() = {epoch_ + 1, between_->identical()};
    std::byte* to = published_pieces();
    for (int host = 0; inline_data_ && between_->identical() && host < number_of_pieces(); ++host) {
      std::memcpy(to, between_->pieces()[static_cast<std::size_t>(host)], piece_bytes(host));
      to += piece_bytes(host);
      epochs_->copied += piece_bytes(host);
    }
    epochs_->publish();
  }

  // ---- between hosts
  Progress exchange_digests() {
    if (left_) return wait_for_goodbye();
    if (!between_hosts_) {
      try {
        if (epochs_ && !host_has_arrived()) return look_around();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::left) throw;
        left_ = error;
        patient_until_ = now_ns() + kPatience;
        return wait_for_goodbye();
      }
      if (!leads()) return Progress::done;
      between_hosts_ = true;
      post();
    }
    const Progress progress = between_->advance();
    if (progress == Progress::done && epochs_) publish_verdict();
    return progress;
  }

  // Waits a limited time for goodbye messages. A rank of this host may have left because of another
  // rank, whose goodbye may still be in flight. The error must then name that rank, because it left
  // first.
  Progress wait_for_goodbye() {
    context_.transport->poll();
    if (now_ns() > patient_until_) throw *left_;
    return Progress::blocked;
  }

  // Posts one piece for all ranks of this host. If their digests differ, posts a piece that equals
  // no other.
  void post() {
    std::byte* const piece = between_->open(tag_);
    std::array<const std::byte*, kMostPayloads> here;
    here[0] = static_cast<const std::byte*>(call_->input);
    std::uint32_t balance = epochs_ ? 0 : balance_;
    const std::vector<int>& ranks = hosts_.here();
    for (int local = 0; epochs_ && local < static_cast<int>(ranks.size()); ++local) {
      if (epochs_->header_of(local).digest != digest_) return between_->post_nothing();
      balance += static_cast<std::uint32_t>(epochs_->mailbox(local).descriptor[slot_].balance);
      if (!inline_data_) continue;
      here[static_cast<std::size_t>(local)] = payload(local);
      if (local > 0) epochs_->copied += payload_bytes(*call_, ranks[static_cast<std::size_t>(local)]);
    }
    if (!inline_data_) return between_->post(digest_, 0, {}, balance);
    if (merged()) {
      const std::span payloads(here.data(), ranks.size());
      return between_->post(digest_, merge_payloads(*call_, payloads, call_->pre, piece), merge_in_exchange(), balance);
    }
    std::size_t nbytes = 0;
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      const std::size_t length = payload_bytes(*call_, ranks[local]);
      if (length > 0) std::memcpy(piece + nbytes, here[local], length);
      nbytes += padded(length);
    }
    between_->post(digest_, nbytes, {}, balance);
  }

  bool can_merge() const { return PieceExchange::can_merge(static_cast<std::size_t>(hosts_.number())); }
  bool merged() const { return merges(call_->collective) && (epochs_ || can_merge()); }   // gives one piece per host
  int number_of_pieces() const { return merged() && can_merge() ? 1 : hosts_.number(); }  // after the exchange
  std::size_t piece_bytes(int host) const {
    if (merged()) return padded(payload_bytes(*call_, 0));
    std::size_t nbytes = 0;
    for (const int rank : hosts_.of(host)) nbytes += padded(payload_bytes(*call_, rank));
    return nbytes;
  }
  PieceExchange::Merge merge_in_exchange() const {
    if (!can_merge()) return {};
    return [&call = *call_](std::byte* into, const std::byte* lower, const std::byte* upper) {
      const std::array both{lower, upper};
      merge_payloads(call, both, {}, into);
    };
  }

  bool equal() const { return leads() ? between_->identical() : verdict()->equal != 0; }

  void collect_data() {
    std::array<const std::byte*, kMostPayloads> pieces, payloads;
    const std::byte* next = leads() ? nullptr : published_pieces();
    for (int host = 0; host < number_of_pieces(); ++host) {
      const auto i = static_cast<std::size_t>(host);
      if (next) epochs_->copied += piece_bytes(host);
      pieces[i] = next ? std::exchange(next, next + piece_bytes(host)) : between_->pieces()[i];
    }
    if (merged())
      return collect_merged(*call_, context_.me, {pieces.data(), static_cast<std::size_t>(number_of_pieces())});
    for (int host = 0; host < hosts_.number(); ++host) {
      const std::byte* at = pieces[static_cast<std::size_t>(host)];
      for (const int rank : hosts_.of(host))
        payloads[static_cast<std::size_t>(rank)] = std::exchange(at, at + padded(payload_bytes(*call_, rank)));
    }
    collect_payloads(*call_, context_.me, {payloads.data(), context_.peers.size()});
  }

  void exchange_descriptors() {
    all_.assign(context_.peers.size(), {});
    all_[static_cast<std::size_t>(context_.me)] = describe(*call_, context_.me);
    exchange(all_.data(), sizeof(Descriptor));
  }

  void exchange_counts() {
    const std::vector<std::uint64_t> mine = counts_of(*call_);
    counts_.assign(mine.size() * context_.peers.size(), 0);
    std::ranges::copy(mine, counts_.begin() + context_.me * static_cast<std::ptrdiff_t>(mine.size()));
    exchange(counts_.data(), mine.size() * sizeof(std::uint64_t));
  }

  // Gathers every rank's record of `nbytes` bytes; this rank's is stored in `records` already.
  void exchange(void* records, std::size_t nbytes) {
    std::vector<Extent> blocks;
    for (std::size_t rank = 0; rank < context_.peers.size(); ++rank)
      blocks.push_back({at(records, rank * nbytes), nbytes});
    const auto schedule = schedule_for(Collective::allgather, algorithm_names(Collective::allgather).front(),
                                       context_.me, context_.size());
    records_ = make_run_schedule(*context_.transport, schedule, context_.peers,
                                 Layout::listed(std::move(blocks), 1, nbytes), nullptr, context_.tags, {});
  }

  static constexpr std::int64_t kPatience = 100'000'000;  // ns

  CallContext& context_;
  Epochs* const epochs_;  // null: ranks share no memory
  const Hosts hosts_;
  std::vector<int> leaders_;              // the transport's ranks, by host
  std::optional<PieceExchange> between_;  // between leaders
  std::vector<Descriptor> all_;           // by rank
  std::vector<std::uint64_t> counts_;     // counts of all ranks, in rank order, if these disagree; else empty
  std::unique_ptr<Task> records_;         // exchanges descriptors or counts; null while calls are equal
  Call* call_ = nullptr;
  bool inline_data_ = false;
  std::uint64_t digest_ = 0;
  std::uint32_t balance_ = 0;  // the lower half, which fits into messages
  std::size_t slot_ = 0;
  int tag_ = 0, looks_ = 0;
  std::uint32_t epoch_ = 0;
  bool host_is_here_ = false;   // all ranks of this host have arrived
  bool between_hosts_ = false;  // the leader waits for other leaders
  // Error if a rank of this host left. Thrown after a time in which the goodbye of another rank,
  // which left first, can arrive.
  std::optional<Error> left_;
  std::int64_t patient_until_ = 0;
};

}  // namespace

std::unique_ptr<ConsistencyCheck> make_message_consistency_check(CallContext& context, const InlineLimits& most) {
  return std::make_unique<MessageConsistencyCheck>(context, most);
}

void reserve_leader_scratch(Node& node, int slot) {
  Mailbox& mine = node.mailbox(node.rank(), slot);
  if (mine.leader_scratch == kPrivate) mine.leader_scratch = node.allocate(2 * kSlot);
}

}  // namespace ringcomm
