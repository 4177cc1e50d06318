// Between hosts, ranks compare what they ask for by messages: digests from everybody to everybody, and small calls'
// data beside them. Where ranks of a host share memory, only one of each host speaks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/call.hpp"
#include "base/task.hpp"
#include "levels/hosts.hpp"
#include "node/epochs.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class Comparison : public Task {
 public:
  // Before the first advance(). `riding`: the call, if its data rides, which outlives this; ranks that are alike all
  // let it, or none.
  virtual void give(std::uint64_t digest, const Call* riding) = 0;
  // When done.
  virtual bool alike() const = 0;  // all digests are equal
  virtual void take() = 0;         // the result of what rode; if all are alike
};

// Bytes of a rank's data that may ride; the same on all ranks.
struct Riding {
  std::size_t reduced = 0;  // of collectives that compute
  std::size_t moved = 0;    // of others
  std::size_t of(Collective collective) const { return computes(collective) ? reduced : moved; }
};

// Every rank speaks.
std::unique_ptr<Comparison> make_flat_comparison(Transport& transport, std::span<const int> peers, int me, int tag,
                                                 Riding most);

// Each host's first rank speaks: it sees its host's digests and data in memory, sends one piece for all of them
// (already reduced, if the call computes), and shows what it gets. `speakers`: the transport's ranks, by host. For a
// slot that has a board.
std::unique_ptr<Comparison> make_host_comparison(Epochs& epochs, const Hosts& hosts, Transport& transport,
                                                 std::span<const int> speakers, int tag, Riding most);

// Memory for that in this rank's arena, kept by the slot, unless the slot has it already. Before the ranks of the host
// meet. Throws Error(invalid), on this rank alone: who makes several ranks' channels reserves it before, and agrees.
void make_board(Node& node, int slot);
// What there is room for: of collectives that compute, from so many ranks or hosts; and on boards.
std::size_t longest_reduced(std::size_t pieces);
Riding most_on_boards(const Hosts& hosts);

}  // namespace ringcomm
