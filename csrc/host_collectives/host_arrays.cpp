// Publishes the offsets of a rank's array in its mailbox, and collects those of all ranks.
#include "host_collectives/host_arrays.hpp"

#include "base/types.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kMostStretches = kPayload / sizeof(std::uint64_t);

}  // namespace

bool HostArrays::publish(Epochs& epochs, const Call& call) {
  Mailbox& mine = epochs.mine();
  std::uint64_t& offset = mine.header[epochs.parity()].offset;
  offset = kPrivate;
  const std::size_t item = size_of(call.dtype);
  if (call.fragments.empty()) {
    if (call.input == call.output) offset = epochs.node().offset_of(call.output, call.count * item);
    return offset != kPrivate;
  }
  if (call.fragments.size() > kMostStretches) return false;
  std::byte* slot = mine.payload[epochs.parity()];
  for (const Fragment& fragment : call.fragments) {
    const std::uint64_t where = epochs.node().offset_of(fragment.output, fragment.count * item);
    if (fragment.input != fragment.output || where == kPrivate) return false;
    std::memcpy(slot, &where, sizeof where);
    slot += sizeof where;
  }
  offset = 0;  // the payload holds the offsets of the stretches
  return true;
}

std::optional<HostArrays> HostArrays::collect(Epochs& epochs, const Call& call, bool& any) {
  const int ranks = epochs.node().size();
  any = false;
  bool all = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool shared = epochs.mailbox(rank).header[epochs.parity()].offset != kPrivate;
    any |= shared;
    all &= shared;
  }
  if (!all) return std::nullopt;
  HostArrays arrays(static_cast<std::size_t>(ranks), size_of(call.dtype));
  for (const Fragment& fragment : call.fragments) arrays.stretches_.add(fragment.count);
  const std::size_t stretches = std::max<std::size_t>(1, call.fragments.size());
  arrays.starts_.reserve(stretches * arrays.ranks_);
  for (std::size_t index = 0; index < stretches; ++index) {
    for (int rank = 0; rank < ranks; ++rank) {
      Mailbox& box = epochs.mailbox(rank);
      std::uint64_t offset = box.header[epochs.parity()].offset;
      if (!call.fragments.empty())
        std::memcpy(&offset, box.payload[epochs.parity()] + index * sizeof offset, sizeof offset);
      arrays.starts_.push_back(epochs.node().at(rank, offset));
    }
  }
  return arrays;
}

std::byte* HostArrays::piece(std::size_t rank, Part part) const {
  std::byte* found = nullptr;
  each(part, [&](std::span<std::byte* const> where, std::size_t, std::size_t count) {
    found = count == part.count ? where[rank] : nullptr;
  });
  return found;
}

}  // namespace ringcomm
