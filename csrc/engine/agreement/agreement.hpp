// What ranks and the coordinator say to each other about what is ready.
//
// Each rank sends the set's first rank (the coordinator) what became ready; the coordinator answers every rank of the
// set with verdicts, in one order: run these (fused) operations, or fail that one and why. A name and signature seen
// before travel as a 4-byte id.
//
// Ids. Every rank of a set reads the same verdicts in the same order, so "which ids exist after verdict k" is the same
// everywhere. A rank uses an id only while it has read of it and not read that it is forgotten. The coordinator,
// which decides both, keeps a forgotten id until every rank has shown (by `read` in its ready messages) that it knows,
// so an id already on its way is always understood. Ids are never used again. Most names come in the same order again
// and again, so they have ids in a row, and travel both ways as one entry with a count.
//
// Joining. A rank that has joined counts as ready for whatever any rank has ready, and gives nothing to it. Once all
// ranks of the set have joined, one verdict ends that for everybody, after all that had been agreed before.
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
  std::uint32_t id = 0;              // of the cache; 0: not cached, then the rest is given
  std::uint32_t count = 1;           // of ids in a row from `id` on, if there is nothing else to say of them
  Descriptor signature;              // name cut; allgather's count: of a row
  std::string name;                  // whole
  std::vector<std::uint64_t> extra;  // allgather: {rows}; alltoall: {rows, splits...} (no splits: even); else empty
  std::uint64_t group = 0;           // grouped: hash of the group's names; a group runs when all of it is ready
  std::uint32_t group_size = 1;

  bool alone() const { return id != 0 && extra.empty() && group_size <= 1; }  // there is nothing but the id
};

struct VerdictItem {
  std::string name{};       // may be left empty if known
  std::uint32_t id = 0;     // cache id; 0 none
  std::uint32_t count = 1;  // of ids in a row from `id` on, all of them known, if there is nothing else to say of them
  bool known = false;       // every rank has read of the id
  // allgather: rows of each rank. alltoall: one number if every rank sends so much to every rank; else rows from each
  // rank (at the coordinator: the matrix, [from * size + to]).
  std::vector<std::uint64_t> sizes{};
  bool matrix = false;
  std::optional<Descriptor> signature{};  // to run while ranks have joined, which know nothing of it

  bool alone() const { return known && sizes.empty() && !signature; }  // there is nothing but the id
};

struct Verdict {
  enum class Kind : std::uint8_t { run, fail, all_joined } kind = Kind::run;
  std::vector<VerdictItem> items{};     // more than one to run: fused into one bucket
  std::vector<std::uint32_t> forget{};  // ids that are no more, once the items are read
  std::vector<int> absent{};            // ranks of the set that have joined and did not submit the items
  int last_joined = -1;                 // all_joined: the last of them, as called in texts
  // fail:
  ErrorKind error = ErrorKind::mismatch;
  std::string why{};
  std::vector<int> ranks{};  // whom it is about
  bool early = false;        // some ranks have not submitted it: it fails there when they do
};

// Puts an entry behind others, or into the last one, if its id comes next and there is nothing but the ids.
template <class Entry>
void append(std::vector<Entry>& entries, Entry&& entry) {
  if (!entries.empty() && entry.alone() && entries.back().alone() &&
      entries.back().id + entries.back().count == entry.id) {
    entries.back().count += entry.count;
  } else {
    entries.push_back(std::move(entry));
  }
}

// Equal as far as agreement cares: all but the text of the shape, which holds dimensions that may differ.
bool same_signature(const Descriptor& a, const Descriptor& b);

// What rank `rank` of the set gets of a verdict: its column of a matrix.
Verdict seen_by(const Verdict& verdict, int rank, int size);
bool has_matrix(const Verdict& verdict);
int index_of(std::span<const int> ranks, int rank);  // -1: it is not among them
inline bool contains(std::span<const int> ranks, int rank) { return index_of(ranks, rank) >= 0; }

}  // namespace ringcomm
