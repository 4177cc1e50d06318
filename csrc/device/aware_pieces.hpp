// Computes the source and destination addresses of a call on the route through a GPU-aware MPI.
// AwareTask (aware_route.cpp) sends messages between these addresses.
//
//  reductions  input slice r  →  slot of me in r's scratch; reduced there  →  slice r of the output
//  scans       likewise; slice r is reduced for each rank q, into a separate slot
//  others      input          →  output; scratch if input and output are the same
#pragma once

#include <algorithm>

#include "base/call.hpp"

namespace ringcomm {

struct ReadArea {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
};
struct WriteArea {
  std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

class AwarePieces {
 public:
  // The call must outlive this object. Its buffers may change until the first address is requested.
  AwarePieces(const Call& call, int me, int ranks)
      : call_(call), me_(me), ranks_(ranks), item_(size_of(call.dtype)), slot_bytes_(longest_share()) {}
  void set_scratch(std::byte* scratch) { scratch_ = scratch; }

  // common_bytes(): size of the scratch that every rank needs. own_bytes(): size of the scratch
  // that this rank needs if its output is its input.
  std::size_t common_bytes() const {
    const std::size_t slots = is_scan(call_.collective) ? 2 : 1;
    return computes(call_.collective) ? slots * slot_bytes_ * static_cast<std::size_t>(ranks_) : 0;
  }
  std::size_t own_bytes() const {
    if (!uses_separate_output()) return 0;
    return item_ * (call_.collective == Collective::reducescatter ? share(me_).count : total(arriving()));
  }

  // Returns the number of elements that this rank reduces. outgoing(me) is its own part of them.
  std::size_t reduced() const { return share(me_).count; }

  ReadArea outgoing(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    switch (call_.collective) {
      case Collective::broadcast:
        return input(0, me_ == call_.root ? call_.count : 0);
      case Collective::allgather:
        return input(0, call_.counts[static_cast<std::size_t>(me_)]);
      case Collective::alltoall:
        return input(start_of(call_.counts, rank), call_.counts[index]);
      default:
        return input(share(rank).first, share(rank).count);
    }
  }
  WriteArea incoming(int rank) const {
    const std::vector<std::size_t>& counts = arriving();
    switch (call_.collective) {
      case Collective::broadcast:
        return output(0, rank == call_.root ? call_.count : 0);
      case Collective::allgather:
      case Collective::alltoall: {
        const WriteArea there = output(start_of(counts, rank), counts[static_cast<std::size_t>(rank)]);
        return uses_separate_output() ? WriteArea{scratch_ + (there.data - output(0, 0).data), there.nbytes} : there;
      }
      default:
        return {slot(rank), share(me_).count * item_};
    }
  }

  // Returns true if a rank receives the slices that other ranks reduced.
  bool gets(int rank) const {
    if (call_.collective == Collective::reduce) return rank == call_.root;
    if (call_.collective == Collective::exscan) return rank > 0;
    return call_.collective == Collective::allreduce || call_.collective == Collective::scan;
  }
  // Returns the address of the slice that this rank reduces for `rank`. Except in scans it is the
  // same for all ranks.
  WriteArea result_for(int rank) const {
    if (is_scan(call_.collective) && rank != me_) return {slot(ranks_ + rank), share(me_).count * item_};
    if (call_.collective == Collective::reducescatter)
      return uses_separate_output() ? incoming(me_) : output(0, share(me_).count);
    return gets(me_) || is_scan(call_.collective) ? output(share(me_).first, share(me_).count) : incoming(me_);
  }
  WriteArea result_from(int rank) const { return output(share(rank).first, share(rank).count); }

  // Returns the memory of the final result: in the output, or in scratch to be copied there.
  WriteArea last() const {
    if (!uses_separate_output()) return output(0, 0);
    return {call_.collective == Collective::reducescatter ? slot(me_) : scratch_, own_bytes()};
  }

 private:
  bool uses_separate_output() const { return call_.input == call_.output && has_blocks(call_.collective); }
  const std::vector<std::size_t>& arriving() const {
    return call_.collective == Collective::alltoall ? call_.receive_counts : call_.counts;
  }
  ReadArea input(std::size_t first, std::size_t count) const { return {at(call_.input, first * item_), count * item_}; }
  WriteArea output(std::size_t first, std::size_t count) const {
    return {at(call_.output, first * item_), count * item_};
  }
  std::byte* slot(int index) const { return scratch_ + static_cast<std::size_t>(index) * slot_bytes_; }

  Part share(int rank) const {
    if (call_.collective != Collective::reducescatter) return slice_of(call_.count, item_, ranks_, rank);
    return {start_of(call_.counts, rank), call_.counts[static_cast<std::size_t>(rank)]};
  }
  std::size_t longest_share() const {
    std::size_t longest = 0;
    for (int rank = 0; computes(call_.collective) && rank < ranks_; ++rank)
      longest = std::max(longest, share(rank).count);
    return round_up(longest * item_, kSlotAlign);
  }

  static constexpr std::size_t kSlotAlign = 256;
  const Call& call_;
  const int me_, ranks_;
  const std::size_t item_, slot_bytes_;
  std::byte* scratch_ = nullptr;
};

}  // namespace ringcomm
