#include "task/comparison.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "task/gathered.hpp"
#include "task/payload.hpp"
#include "task/two_level_pass.hpp"

namespace ringcomm {
namespace {

class FlatComparison final : public Comparison {
 public:
  FlatComparison(Transport& transport, std::span<const int> peers, int me, int tag, Riding most)
      : me_(me), gathering_(transport, peers, me, tag, std::max(most.reduced, most.moved)) {}

  void give(std::uint64_t digest, std::optional<NodeCall> riding) override {
    call_ = std::move(riding);
    gathering_.give(digest, call_ ? put_payload(*call_, me_, gathering_.mine()) : 0);
  }
  Progress advance() override { return gathering_.advance(); }
  void abandon() noexcept override { gathering_.abandon(); }
  bool alike() const override { return gathering_.alike(); }
  void take() override { take_payloads(*call_, me_, gathering_.pieces()); }

 private:
  const int me_;
  Gathering gathering_;
  std::optional<NodeCall> call_;
};

// ---- by hosts --------------------------------------------------------------------------------------------------------
// A board has two places, which calls take in turns as they do in mailboxes (node/node.hpp). In each every rank has its own
// payload, and the speaker what came of the comparison: whether all are alike, and the pieces of all hosts.
constexpr std::size_t kLongestPayload = 4096, kVerdict = 64;
constexpr std::size_t kPieces = kPayloadsTogether + kMostPayloads * kPieceAlign;
constexpr std::size_t kPlace = kLongestPayload + kVerdict + kPieces;

class HostComparison final : public Comparison {
 public:
  HostComparison(Epochs& epochs, const Hosts& hosts, Transport& transport, std::span<const int> speakers, int tag, Riding most)
      : epochs_(epochs), hosts_(hosts), transport_(transport), place_(epochs.open_call()) {
    if (!speaks()) return;
    std::size_t ranks = 0;
    for (int host = 0; host < hosts.number(); ++host) ranks = std::max(ranks, hosts.of(host).size());
    gathering_.emplace(transport, speakers, hosts.mine(), tag, std::max(most.reduced, ranks * padded(most.moved)));
  }

  // Who does not speak arrives a second time at once: only the speaker's second arrival means something.
  void give(std::uint64_t digest, std::optional<NodeCall> riding) override {
    call_ = std::move(riding);
    if (call_) put_payload(*call_, group_rank(epochs_.node().rank()), payload(epochs_.node().rank()));
    epochs_.mine().opening[place_].digest = digest == Gathering::kUnlike ? 1 : digest;
    epoch_ = epochs_.publish();
    if (!speaks()) epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (!met_) {
      if (!arrived_here(epochs_, epoch_, hosts_)) return slept_ && transport_.poll() ? Progress::moved : Progress::blocked;
      met_ = true;
      if (!speaks()) return Progress::done;
      speak();
    }
    const Progress progress = gathering_->advance();
    if (progress == Progress::done) tell();
    return progress;
  }

  // The host's other ranks would wait for what the speaker heard.
  void abandon() noexcept override {
    if (!speaks() || told_) return;
    gathering_->abandon();
    epochs_.mine().state.store(2, std::memory_order_release);
    epochs_.wake();
  }

  // An arrival wakes the sleeper; messages wake nobody.
  void nap(std::chrono::nanoseconds longest) override {
    if (met_) return Task::nap(longest);
    slept_ = true;
    epochs_.sleep(epoch_, std::max<std::chrono::nanoseconds>(longest, std::chrono::milliseconds(20)).count());
  }

  bool stuck() const override { return met_ || slept_; }
  bool alike() const override { return *verdict() != 0; }

  void take() override {
    const int me = group_rank(epochs_.node().rank());
    std::array<const std::byte*, kMostPayloads> found;
    std::size_t count = 0;
    const std::byte* at = pieces();
    for (int host = 0; host < hosts_.number(); ++host) {
      if (merged()) found[count++] = std::exchange(at, at + piece_bytes(host));
      for (const int rank : merged() ? std::vector<int>{} : hosts_.of(host)) {
        found[static_cast<std::size_t>(rank)] = std::exchange(at, at + padded(payload_bytes(*call_, rank)));
        ++count;
      }
    }
    const std::span all(found.data(), count);
    merged() ? take_merged(*call_, me, all) : take_payloads(*call_, me, all);
  }

 private:
  static std::size_t padded(std::size_t nbytes) { return (nbytes + kPieceAlign - 1) / kPieceAlign * kPieceAlign; }
  std::size_t piece_bytes(int host) const {
    if (merged()) return padded(payload_bytes(*call_, 0));
    std::size_t nbytes = 0;
    for (const int rank : hosts_.of(host)) nbytes += padded(payload_bytes(*call_, rank));
    return nbytes;
  }
  bool speaks() const { return epochs_.node().rank() == 0; }
  bool merged() const { return computes(call_->collective); }
  int group_rank(int local) const { return hosts_.here()[static_cast<std::size_t>(local)]; }
  std::byte* board(int local) const { return epochs_.node().at(local, epochs_.mailbox(local).board) + place_ * kPlace; }
  std::byte* payload(int local) const { return board(local); }
  std::uint64_t* verdict() const { return reinterpret_cast<std::uint64_t*>(board(0) + kLongestPayload); }
  std::byte* pieces() const { return board(0) + kLongestPayload + kVerdict; }

  // A host whose ranks differ gives no digest, which is like nobody's.
  void speak() {
    const int here = epochs_.node().size();
    const std::uint64_t digest = epochs_.mine().opening[place_].digest;
    for (int local = 0; local < here; ++local) {
      if (epochs_.mailbox(local).opening[place_].digest != digest) return gathering_->give(Gathering::kUnlike, 0);
    }
    std::size_t nbytes = 0;
    if (call_ && merged()) {
      std::array<const std::byte*, kMostPayloads> found;
      for (int local = 0; local < here; ++local) found[static_cast<std::size_t>(local)] = payload(local);
      nbytes = merge_payloads(*call_, std::span(found.data(), static_cast<std::size_t>(here)), gathering_->mine());
    } else if (call_) {
      for (int local = 0; local < here; ++local) {
        const std::size_t length = payload_bytes(*call_, group_rank(local));
        std::memcpy(gathering_->mine() + nbytes, payload(local), length);
        nbytes += padded(length);
      }
    }
    gathering_->give(digest, nbytes);
  }

  void tell() {
    *verdict() = gathering_->alike() ? 1 : 0;
    std::byte* to = pieces();
    for (int host = 0; call_ && gathering_->alike() && host < hosts_.number(); ++host) {
      std::memcpy(to, gathering_->pieces()[static_cast<std::size_t>(host)], piece_bytes(host));
      to += piece_bytes(host);
    }
    told_ = true;
    epochs_.publish();
  }

  Epochs& epochs_;
  const Hosts& hosts_;
  Transport& transport_;
  const std::size_t place_;
  std::optional<Gathering> gathering_;  // the speaker's
  std::optional<NodeCall> call_;
  std::uint32_t epoch_ = 0;
  bool met_ = false, told_ = false;
  bool slept_ = false;  // in waiting for the host
};

}  // namespace

std::unique_ptr<Comparison> make_flat_comparison(Transport& transport, std::span<const int> peers, int me, int tag, Riding most) {
  return std::make_unique<FlatComparison>(transport, peers, me, tag, most);
}

std::unique_ptr<Comparison> make_host_comparison(Epochs& epochs, const Hosts& hosts, Transport& transport, std::span<const int> speakers,
                                                 int tag, Riding most) {
  return std::make_unique<HostComparison>(epochs, hosts, transport, speakers, tag, most);
}

void make_board(Epochs& epochs) {
  Mailbox& mine = epochs.mine();
  if (mine.board == kPrivate) mine.board = epochs.node().allocate(2 * kPlace);
}

Riding most_on_boards(const Hosts& hosts) {
  std::size_t ranks = 0;
  for (int host = 0; host < hosts.number(); ++host) ranks += hosts.of(host).size();
  const auto number = static_cast<std::size_t>(hosts.number());
  return {std::min(kLongestPayload, kPayloadsTogether / number), std::min(kLongestPayload, kPayloadsTogether / ranks)};
}

}  // namespace ringcomm
