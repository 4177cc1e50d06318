// Publishes the offsets of a rank's arrays in its mailbox, and collects those of all ranks.
#include "host_collectives/host_arrays.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/types.hpp"

namespace ringcomm {
namespace {

// Values of Offsets::array for arrays with offsets in the payload. kListed: an offset for each
// stretch, in place. kListedTwice: the offsets of all outputs, then those of all inputs. Any other
// value is the offset of one array in place.
constexpr std::uint64_t kListed = kPrivate - 1, kListedTwice = kPrivate - 2;

std::uint64_t listed(const Mailbox& box, std::size_t parity, std::size_t index) {
  std::uint64_t offset = 0;
  std::memcpy(&offset, box.payload[parity] + index * sizeof offset, sizeof offset);
  return offset;
}

}  // namespace

bool HostArrays::publish(Epochs& epochs, const Call& call) {
  Mailbox& mine = epochs.mine();
  const Node& node = epochs.node();
  const std::size_t item = size_of(call.dtype);
  std::uint64_t& offset = epochs.header().offsets.array;
  offset = kPrivate;
  const Fragment whole{call.input, call.output, call.count};
  const std::span pieces = call.fragments.empty() ? std::span(&whole, 1) : std::span(call.fragments);
  const bool in_place = std::ranges::all_of(pieces, [](const Fragment& one) { return one.input == one.output; });
  if (in_place && call.fragments.empty()) {
    offset = node.offset_of(call.output, call.count * item);
    return offset != kPrivate;
  }
  if ((in_place ? 1 : 2) * pieces.size() * sizeof offset > kPayload) return false;
  std::byte* slot = mine.payload[epochs.parity()];
  const auto list = [&](const void* data, std::size_t count) {
    const std::uint64_t where = node.offset_of(data, count * item);
    std::memcpy(slot, &where, sizeof where);
    slot += sizeof where;
    return where != kPrivate;
  };
  if (!std::ranges::all_of(pieces, [&](const Fragment& one) { return list(one.output, one.count); })) return false;
  if (!in_place && !std::ranges::all_of(pieces, [&](const Fragment& one) { return list(one.input, one.count); }))
    return false;
  offset = in_place ? kListed : kListedTwice;
  return true;
}

std::optional<HostArrays> HostArrays::collect(Epochs& epochs, const Call& call, bool& any) {
  const int ranks = epochs.node().size();
  const auto parity = epochs.parity();
  any = false;
  bool all = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool shared = epochs.header_of(rank).offsets.array != kPrivate;
    any |= shared;
    all &= shared;
  }
  if (!all) return std::nullopt;
  HostArrays arrays(static_cast<std::size_t>(ranks), size_of(call.dtype));
  for (const Fragment& fragment : call.fragments) arrays.stretches_.add(fragment.count);
  const std::size_t stretches = std::max<std::size_t>(1, call.fragments.size());
  for (std::size_t index = 0; index < stretches; ++index) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Mailbox& box = epochs.mailbox(rank);
      const std::uint64_t offset = epochs.header_of(rank).offsets.array;
      const bool twice = offset == kListedTwice, one_array = !twice && offset != kListed;
      const std::uint64_t output = one_array ? offset : listed(box, parity, index);
      const std::uint64_t input = twice ? listed(box, parity, stretches + index) : output;
      arrays.starts_.inputs.push_back(epochs.node().at(rank, input));
      arrays.starts_.outputs.push_back(epochs.node().at(rank, output));
    }
  }
  return arrays;
}

std::byte* HostArrays::output_of(std::size_t rank, Part part) const {
  std::byte* found = nullptr;
  each(part, [&](const Places& places, std::size_t, std::size_t count) {
    found = count == part.count ? places.outputs[rank] : nullptr;
  });
  return found;
}

}  // namespace ringcomm
