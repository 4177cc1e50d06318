// What is ready everywhere: the bookkeeping of agreement, without transport, so that it can be tested alone.
//
// Each rank tells the set's first rank (the coordinator) what became ready; the coordinator answers every rank of the
// set with verdicts, in one order: run these (fused) operations, or fail that one and why. A name and signature seen
// before travel as a 4-byte id.
//
// Ids. Every rank of a set hears the same verdicts in the same order, so "which ids exist after verdict k" is the same
// everywhere. A rank uses an id only while it has heard of it and not heard that it is forgotten. The coordinator,
// which decides both, keeps a forgotten id until every rank has shown (by `heard` in its ready messages) that it knows,
// so an id already on its way is always understood. Ids are never used again.
//
// Most names come in the same order again and again, and alike from every rank: these travel as ranges of ids, and the
// coordinator keeps them as such (engine/spans.hpp). As soon as one of them is anything else (whole, in a group, with
// sizes, forgotten, withdrawn, overdue, or there is a rank that has joined) it gets a row of its own like any other.
//
// Joining. A rank that has joined counts as ready for whatever any rank has ready, and gives nothing to it. Once all
// ranks of the set have joined, one verdict ends that for everybody, after all that had been agreed before.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "engine/spans.hpp"
#include "node/descriptor.hpp"

namespace ringcomm {

struct Ready {                       // one rank's entry
  std::uint32_t id = 0;              // of the cache; 0: not cached, then the rest is given
  std::uint32_t count = 1;           // of ids in a row from `id` on, if there is nothing else to say of them
  Descriptor signature;              // name cut; allgather's count: of a row
  std::string name;                  // whole
  std::vector<std::uint64_t> extra;  // allgather: {rows}; alltoall: {rows, splits...} (no splits: even); else empty
  std::uint64_t group = 0;           // grouped: hash of the group's names; a group runs when all of it is ready
  std::uint32_t group_size = 1;
};
void append(std::vector<Ready>& entries, Ready&& entry);  // to the last one, if its id comes next

// In Descriptor::algorithm, before that of the plan's calls: a plan's step, never fused with anything. (No algorithm's
// name begins so.)
inline constexpr std::string_view kPlanAlgorithm = "plan/";

bool is_plan(const Descriptor& signature);

// Equal as far as agreement cares: all but the text of the shape, which holds dimensions that may differ.
bool same_signature(const Descriptor& a, const Descriptor& b);

struct VerdictItem {
  std::string name;      // may be left empty if known
  std::uint32_t id = 0;  // cache id; 0 none
  // of ids in a row from `id` on, all of them known, if there is nothing else to say of them
  std::uint32_t count = 1;
  bool known = false;  // every rank has heard of the id
  // allgather: rows of each rank. alltoall: one number if every rank sends so much to every rank; else rows from each
  // rank (at the coordinator: the matrix, [from * size + to]).
  std::vector<std::uint64_t> sizes{};
  bool matrix = false;
  std::optional<Descriptor> signature{};  // to run while ranks have joined, which know nothing of it

  bool alone() const { return id != 0 && name.empty() && sizes.empty() && !signature; }  // there is nothing but the id
};

struct Verdict {
  enum class Kind : std::uint8_t { run, fail, all_joined } kind = Kind::run;
  std::vector<VerdictItem> items;     // more than one to run: fused into one bucket
  std::vector<std::uint32_t> forget;  // ids that are no more, once the items are read
  std::vector<int> absent;            // ranks of the set that have joined and did not submit the items
  int last_joined = -1;               // all_joined: the last of them, as called in texts
  // fail:
  ErrorKind error = ErrorKind::mismatch;
  std::string why;
  std::vector<int> ranks;  // whom it is about
  bool early = false;      // some ranks have not submitted it: it fails there when they do
};

// What rank `rank` of the set gets of a verdict: its column of a matrix.
Verdict seen_by(const Verdict& verdict, int rank, int size);
bool has_matrix(const Verdict& verdict);
int place_of(std::span<const int> ranks, int rank);  // -1: it is not among them
inline bool contains(std::span<const int> ranks, int rank) { return place_of(ranks, rank) >= 0; }

class Coordinator {
 public:
  // `ranks[i]` is what rank i of the set is called in texts. cache_capacity: names remembered.
  Coordinator(std::vector<int> ranks, std::size_t fusion_bytes, std::size_t cache_capacity);

  // Rank `rank` (of the set), which has heard so many verdicts, has this ready. Throws Error(internal) for nonsense.
  void ready(int rank, std::uint64_t heard, const Ready& entry);
  void hears(int rank, std::uint64_t heard);
  // Rank `rank` has nothing more to give, and takes part in what the others have until all have joined.
  void join(int rank);
  // Rank `rank` gives up waiting for it: it fails everywhere, unless it has been agreed meanwhile.
  void withdraw(int rank, const std::string& name, const std::string& why);
  void end();                     // a rank is leaving: nothing more is agreed
  std::vector<Verdict> decide();  // what has become due, in order

  std::uint64_t issued() const { return issued_; }
  const std::string& name_under(std::uint32_t id) {
    return known_by(id).name;
  }  // that a rank may still use. Throws Error(internal)
  std::vector<int> missing(const std::string& name);  // who is yet to submit it, as called in texts
  struct Waiting {
    std::string name;
    std::int64_t since_ns;           // the first submission
    std::vector<int> here, missing;  // ranks
  };
  std::vector<Waiting> waiting(std::int64_t before_ns);  // what was first submitted before, oldest first
  std::size_t ids() const { return known_.size(); }      // remembered, forgotten ones not yet known to be so included

 private:
  struct Row {                          // one name, waiting
    const std::string* name = nullptr;  // its key
    std::uint32_t id = 0;               // that ranks gave for it; 0: none
    Descriptor first;
    bool differs = false;
    std::unordered_map<int, Descriptor> others;  // of ranks that gave not the same bytes as the first
    std::vector<char> here;                      // by rank
    int count = 0;
    bool complete = false;                           // here, or joined, are all
    std::vector<std::vector<std::uint64_t>> extras;  // by rank, if there are any; empty: absent
    std::uint64_t group = 0;
    std::uint32_t group_size = 1;
    int first_rank = 0, odd_rank = -1;  // a rank that gave another group than the first
    std::int64_t since_ns = 0;
  };
  struct Known {
    std::string name;
    Descriptor signature;
    std::list<std::uint32_t>::iterator use;  // its place in recent_
    bool forgotten = false;
    Row* row = nullptr;  // that waits under this id, if there is one
  };
  struct Early {              // an operation that failed before all had submitted it
    std::uint64_t number;     // of the verdict
    std::vector<char> owing;  // ranks whose submission is still to come
  };
  struct Draft {
    Verdict verdict;
    std::vector<Descriptor> signatures;  // of the items that came without an id
    std::size_t bytes = 0;
  };
  using FusionKey = std::pair<std::array<char, sizeof(Descriptor)>, std::vector<int>>;  // kind, and who is absent
  struct Decision {
    std::vector<Draft> drafts;
    std::map<FusionKey, std::size_t> open;                    // buckets that still take tensors
    std::pair<const FusionKey, std::size_t>* last = nullptr;  // the entry used last: most tensors are alike
  };

  void ready_row(int rank, std::uint64_t heard, const Ready& entry, std::uint32_t id);
  bool nothing_unusual() const;
  static bool is_plain(const Ready& entry);
  bool is_plain(const Known& known) const;
  Known& known_by(std::uint32_t id);
  void unfold(const Spans::Span& span);
  void unfold(const std::string& name);
  void unfold_all();
  bool owed(int rank, std::uint64_t heard, const std::string& name);
  Row& row_of(const std::string& name, std::uint32_t id, Known* known);
  void drop(Row& row);
  void look_if_complete(Row& row);
  bool expected(const Row& row, std::size_t rank) const { return !row.here[rank] && !joined_[rank]; }
  std::vector<int> absent(const Row& row) const;
  void judge(std::span<Row* const> rows, Decision& decision);
  void add(Row& row, Decision& decision);
  void add(IdRange ids, Decision& decision);
  Draft& draft_for(const Descriptor& signature, std::vector<int> absent, Decision& decision);
  Draft* open_draft(const Descriptor& kind, const std::vector<int>& absent, std::size_t bytes, Decision& decision);
  std::optional<Error> complaint(const std::string& name, const Row& row) const;
  std::optional<Error> root_is_absent(const std::string& name, const Row& row) const;
  std::string bad_rows(const std::string& name, const Row& row) const;
  std::string quarrel(const std::string& name, const Row& row) const;
  std::string bad_splits(const std::string& name, const Row& row) const;
  VerdictItem item_of(const Row& row) const;
  void leave_group(Row& row);
  void identify(Draft& draft);
  void separate(Draft& draft);
  bool is_filling() const;
  void used(Known& known);
  void remember(VerdictItem& item, const Descriptor& signature, Verdict& verdict);
  void forget(std::uint32_t id, Verdict& verdict);
  void clean_up();

  const std::vector<int> ranks_;
  const std::size_t fusion_bytes_, cache_capacity_;
  std::uint64_t issued_ = 0;
  bool ended_ = false;
  std::vector<std::uint64_t> heard_;  // by rank
  std::vector<char> joined_;          // by rank
  int joined_count_ = 0, last_joined_ = -1;
  std::unordered_map<std::string, Row> rows_;
  Spans spans_;
  std::vector<Row*> complete_;                                   // ready everywhere, since the last decide()
  std::vector<IdRange> complete_ids_;                            // the same
  std::unordered_map<std::uint64_t, std::vector<Row*>> groups_;  // members that are complete
  std::vector<Verdict> failures_;                                // by withdraw(), since the last decide()
  std::unordered_map<std::string, std::vector<Early>> early_;
  std::unordered_map<std::uint32_t, Known> known_;
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::list<std::uint32_t> recent_;                                // live ids, the last used first
  std::deque<std::pair<std::uint64_t, std::uint32_t>> forgotten_;  // (verdicts to have heard, id)
  std::uint32_t next_id_ = 1;
};

// A rank's side of the cache.
class KnownNames {
 public:
  std::uint32_t find(const std::string& name, const Descriptor& signature) const;  // 0: send it whole
  const std::string& name_of(std::uint32_t id) const;                              // throws Error(internal)
  std::uint64_t forgets() const { return forgets_; }  // what find() gave is right until there are more
  void learn(std::uint32_t id, const std::string& name, const Descriptor& signature);
  void forget(std::uint32_t id);

 private:
  struct Known {
    std::uint32_t id;
    Descriptor signature;
  };
  std::unordered_map<std::string, Known> by_name_;
  std::unordered_map<std::uint32_t, std::string> by_id_;
  std::uint64_t forgets_ = 0;
};

}  // namespace ringcomm
