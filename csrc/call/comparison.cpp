#include "call/comparison.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "call/gathered.hpp"
#include "memory/payload.hpp"

namespace ringcomm {
namespace {

// Sums and the like of payloads of one call, for as long as it is there; nothing for calls that only move bytes.
Gathering::Merge merging(const Call& call, std::size_t pieces) {
  if (!computes(call.collective) || !Gathering::can_merge(pieces)) return {};
  return [&call](std::byte* into, const std::byte* lower, const std::byte* upper) {
    const std::array both{lower, upper};
    merge_payloads(call, both, {}, into);
  };
}

class FlatComparison final : public Comparison {
 public:
  FlatComparison(Transport& transport, std::span<const int> peers, int me, int tag, Riding most)
      : me_(me), ranks_(peers.size()), gathering_(transport, peers, me, tag, std::max(most.reduced, most.moved)) {}

  void give(std::uint64_t digest, const Call* riding) override {
    call_ = riding;
    if (!call_) return gathering_.give(digest, 0);
    auto merge = merging(*call_, ranks_);
    const std::array mine{static_cast<const std::byte*>(call_->input)};
    const std::size_t nbytes = merge ? merge_payloads(*call_, mine, call_->pre, gathering_.mine())
                                     : publish_payload(*call_, me_, gathering_.mine());
    gathering_.give(digest, nbytes, std::move(merge));
  }
  Progress advance() override { return gathering_.advance(); }
  void abandon() noexcept override { gathering_.abandon(); }
  bool alike() const override { return gathering_.alike(); }
  void take() override {
    if (gathering_.pieces().size() == ranks_)
      collect_payloads(*call_, me_, gathering_.pieces());
    else
      collect_merged(*call_, me_, gathering_.pieces());
  }

 private:
  const int me_;
  const std::size_t ranks_;
  Gathering gathering_;
  const Call* call_ = nullptr;
};

// ---- by hosts
// A board has two slots, for even and for odd calls, as mailboxes have (node/mailbox.hpp). In each every rank has its
// own payload, and the speaker what came of the comparison: whether all are alike, and the pieces of all hosts.
constexpr std::size_t kVerdict = 64;
constexpr std::size_t kPieces = kPayloadsTogether + kMostPayloads * kPieceAlign;
constexpr std::size_t kPlace = kLongestPiece + kVerdict + kPieces;

class HostComparison final : public Comparison {
 public:
  HostComparison(Epochs& epochs, const Hosts& hosts, Transport& transport, std::span<const int> speakers, int tag,
                 Riding most)
      : epochs_(epochs), hosts_(hosts), transport_(transport), place_(epochs.open_call()) {
    if (!speaks()) return;
    std::size_t ranks = 0;
    for (int host = 0; host < hosts.number(); ++host) ranks = std::max(ranks, hosts.of(host).size());
    gathering_.emplace(transport, speakers, hosts.mine(), tag, std::max(most.reduced, ranks * padded(most.moved)));
  }

  // Who does not speak arrives a second time at once: only the speaker's second arrival means something.
  void give(std::uint64_t digest, const Call* riding) override {
    call_ = riding;
    if (call_) publish_payload(*call_, group_rank(epochs_.node().rank()), payload(epochs_.node().rank()));
    epochs_.mine().opening[place_].digest = digest;
    epoch_ = epochs_.publish();
    if (!speaks()) epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (!met_) {
      here_ = arrived_here(epochs_, epoch_, hosts_);
      if (!here_ || (!speaks() && verdict()->told != epoch_)) return look_around();
      met_ = true;
      if (!speaks()) return Progress::done;
      speak();
    }
    const Progress progress = gathering_->advance();
    if (progress == Progress::done) tell();
    return progress;
  }

  void abandon() noexcept override {
    if (gathering_) gathering_->abandon();
  }

  // An arrival wakes the sleeper; messages wake nobody.
  void nap(std::chrono::nanoseconds longest) override {
    if (here_) return Task::nap(longest);
    epochs_.sleep(epoch_, std::max<std::chrono::nanoseconds>(longest, std::chrono::milliseconds(20)).count());
  }

  bool alike() const override { return verdict()->alike != 0; }

  void take() override {
    const int me = group_rank(epochs_.node().rank());
    std::array<const std::byte*, kMostPayloads> found;
    std::size_t count = 0;
    const std::byte* at = pieces();
    if (merged()) {
      for (int i = 0; i < pieces_told(); ++i) found[count++] = std::exchange(at, at + piece_bytes(i));
      return collect_merged(*call_, me, {found.data(), count});
    }
    for (int host = 0; host < hosts_.number(); ++host) {
      for (const int rank : hosts_.of(host)) {
        found[static_cast<std::size_t>(rank)] = std::exchange(at, at + padded(payload_bytes(*call_, rank)));
        ++count;
      }
    }
    collect_payloads(*call_, me, {found.data(), count});
  }

 private:
  // `told`: the arrival it came with. A speaker that gave a call up tells nothing, and arrives all the same with its
  // next one.
  struct Verdict {
    std::uint32_t told, alike;
  };
  static constexpr std::size_t padded(std::size_t nbytes) { return round_up(nbytes, kPieceAlign); }
  std::size_t piece_bytes(int host) const {
    if (merged()) return padded(payload_bytes(*call_, 0));
    std::size_t nbytes = 0;
    for (const int rank : hosts_.of(host)) nbytes += padded(payload_bytes(*call_, rank));
    return nbytes;
  }
  bool speaks() const { return epochs_.node().rank() == 0; }
  bool merged() const { return computes(call_->collective); }
  int pieces_told() const {
    return merged() && Gathering::can_merge(static_cast<std::size_t>(hosts_.number())) ? 1 : hosts_.number();
  }
  int group_rank(int local) const { return hosts_.here()[static_cast<std::size_t>(local)]; }
  std::byte* board(int local) const { return epochs_.node().at(local, epochs_.mailbox(local).board) + place_ * kPlace; }
  std::byte* payload(int local) const { return board(local); }
  Verdict* verdict() const { return reinterpret_cast<Verdict*>(board(0) + kLongestPiece); }
  std::byte* pieces() const { return board(0) + kLongestPiece + kVerdict; }

  // An arrival comes soon, mostly; that it will not, because somebody has left, is told by messages, and these cost
  // more to look at.
  Progress look_around() {
    if (looks_ < 64) return ++looks_, Progress::blocked;
    return transport_.poll() ? Progress::moved : Progress::blocked;
  }

  // Ranks of this host that differ are like nobody.
  void speak() {
    const int here = epochs_.node().size();
    const std::uint64_t digest = epochs_.mine().opening[place_].digest;
    for (int local = 0; local < here; ++local) {
      if (epochs_.mailbox(local).opening[place_].digest != digest) return gathering_->give_nothing();
    }
    if (!call_) return gathering_->give(digest, 0);
    std::size_t nbytes = 0;
    if (merged()) {
      std::array<const std::byte*, kMostPayloads> found;
      for (int local = 0; local < here; ++local) found[static_cast<std::size_t>(local)] = payload(local);
      nbytes = merge_payloads(*call_, std::span(found.data(), static_cast<std::size_t>(here)), call_->pre,
                              gathering_->mine());
    } else {
      for (int local = 0; local < here; ++local) {
        const std::size_t length = payload_bytes(*call_, group_rank(local));
        std::memcpy(gathering_->mine() + nbytes, payload(local), length);
        nbytes += padded(length);
      }
    }
    gathering_->give(digest, nbytes, merging(*call_, static_cast<std::size_t>(hosts_.number())));
  }

  void tell() {
    *verdict() = {epoch_ + 1, gathering_->alike()};
    std::byte* to = pieces();
    for (int host = 0; call_ && gathering_->alike() && host < pieces_told(); ++host) {
      std::memcpy(to, gathering_->pieces()[static_cast<std::size_t>(host)], piece_bytes(host));
      to += piece_bytes(host);
    }
    epochs_.publish();
  }

  Epochs& epochs_;
  const Hosts& hosts_;
  Transport& transport_;
  const std::size_t place_;
  std::optional<Gathering> gathering_;  // the speaker's
  const Call* call_ = nullptr;
  std::uint32_t epoch_ = 0;
  int looks_ = 0;
  bool here_ = false;  // everybody of this host is
  bool met_ = false;   // and nothing but other hosts is waited for
};

}  // namespace

std::unique_ptr<Comparison> make_flat_comparison(Transport& transport, std::span<const int> peers, int me, int tag,
                                                 Riding most) {
  return std::make_unique<FlatComparison>(transport, peers, me, tag, most);
}

std::unique_ptr<Comparison> make_host_comparison(Epochs& epochs, const Hosts& hosts, Transport& transport,
                                                 std::span<const int> speakers, int tag, Riding most) {
  return std::make_unique<HostComparison>(epochs, hosts, transport, speakers, tag, most);
}

void make_board(Node& node, int slot) {
  Mailbox& mine = node.mailbox(node.rank(), slot);
  if (mine.board == kPrivate) mine.board = node.allocate(2 * kPlace);
}

std::size_t longest_reduced(std::size_t pieces) {
  return std::min(kLongestPiece, (Gathering::can_merge(pieces) ? kMergedTogether : kPayloadsTogether) / pieces);
}

Riding most_on_boards(const Hosts& hosts) {
  std::size_t ranks = 0;
  for (int host = 0; host < hosts.number(); ++host) ranks += hosts.of(host).size();
  const auto number = static_cast<std::size_t>(hosts.number());
  return {longest_reduced(number), std::min(kLongestPiece, kPayloadsTogether / ranks)};
}

}  // namespace ringcomm
