// The entries of messages between ranks and the coordinator about ready operations.
//
// Each rank sends the set's first rank (the coordinator) the operations that became ready. The
// coordinator answers every rank of the set with verdicts, in one order: run these (fused)
// operations, or fail that one and why. A name and signature that were sent before are sent as a
// 4-byte id.
//
// Ids. Every rank of a set reads the same verdicts in the same order, so the ids that exist after
// verdict k are the same on all ranks. Verdicts of the coordinator assign and forget ids; a rank
// uses an id only between reading these two. The coordinator keeps a forgotten id until the ready
// messages of every rank show (`read`) that the rank has read the second one. So an id in transit
// is always understood. Ids are never reused. Most names are submitted in the same order in each
// step, so they have consecutive ids, which are sent in both directions as one entry with a count.
//
// Joining. A rank that has joined counts as ready for every operation that any rank has ready, and
// contributes nothing to it. Once all ranks of the set have joined, one verdict ends the join on
// all ranks, after all earlier verdicts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

struct Ready {                       // one rank's entry
  std::uint32_t id = 0;              // id in the cache; 0: not cached, then signature and name are given
  std::uint32_t count = 1;           // number of consecutive ids from `id` on, if no other field is set
  Descriptor signature;              // its name is truncated; its count, for allgather, is that of a row
  std::string name;                  // not truncated
  std::vector<std::uint64_t> extra;  // allgather: {rows}; alltoall: {rows, splits...} (no splits: even); else empty
  std::uint64_t group = 0;           // grouped: hash of the group's names; a group runs when all of it is ready
  std::uint32_t group_size = 1;
  std::int32_t priority = 0;  // NamedRequest::priority

  // only the id is set
  bool alone() const { return id != 0 && extra.empty() && group_size <= 1 && priority == 0; }
};

struct VerdictItem {
  std::string name{};       // may be empty if `known`
  std::uint32_t id = 0;     // cache id; 0: none
  std::uint32_t count = 1;  // number of consecutive ids from `id` on, if all are known and no other field is set
  bool known = false;       // every rank knows the name of this id from an earlier verdict
  // allgather: rows of each rank. alltoall: one number if every rank sends that many rows to every
  // rank; otherwise rows from each rank (at the coordinator: the matrix, [from * size + to]).
  std::vector<std::uint64_t> sizes{};
  bool matrix = false;
  std::optional<Descriptor> signature{};  // set if ranks have joined: they build the operation from it

  bool alone() const { return known && sizes.empty() && !signature; }  // only the id is set
};

struct Verdict {
  enum class Kind : std::uint8_t { run, fail, all_joined } kind = Kind::run;
  std::vector<VerdictItem> items{};      // more than one to run: fused into one bucket
  std::vector<std::uint32_t> forget{};   // ids that are invalid once the items are read
  std::vector<int> placeholder_ranks{};  // ranks of the set that have joined and did not submit the items
  int last_joined = -1;                  // all_joined: the last rank to join, as numbered in messages to users
  // fail:
  ErrorKind error = ErrorKind::mismatch;
  std::string why{};
  std::vector<int> ranks{};  // ranks that the error names
  bool early = false;        // some ranks have not submitted the operation: it fails there on submission
};

// Appends an entry. If the last entry and this one are only ids, and the ids are consecutive,
// merges the entries instead.
template <class Entry>
void append(std::vector<Entry>& entries, Entry&& entry) {
  if (!entries.empty() && entry.alone() && entries.back().alone() &&
      entries.back().id + entries.back().count == entry.id) {
    entries.back().count += entry.count;
  } else {
    entries.push_back(std::move(entry));
  }
}

// Returns whether the signatures agree. Ignores the text of the shape, because it holds dimensions
// that may differ.
bool same_signature(const Descriptor& a, const Descriptor& b);

// Returns the verdict as sent to rank `rank` of the set: with its column of a matrix.
Verdict seen_by(const Verdict& verdict, int rank, int size);
bool has_matrix(const Verdict& verdict);
int index_of(std::span<const int> ranks, int rank);  // -1: not found
inline bool contains(std::span<const int> ranks, int rank) { return index_of(ranks, rank) >= 0; }

}  // namespace ringcomm
