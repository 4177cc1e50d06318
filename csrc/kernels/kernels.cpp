// Implements the kernels' interface: selects the function from the table, and cuts the work into
// passes of at most 8 streams.
#include "kernels/kernels.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/table.hpp"

namespace ringcomm::kernels {
namespace {

RunPass pass_for(DType dtype, Op op, bool scaled) {
  const int row = op == Op::average || op == Op::sum ? 0 : static_cast<int>(op) - static_cast<int>(Op::min) + 1;
  return table().rows[static_cast<std::size_t>(dtype)].pass[row][scaled ? 1 : 0];
}

std::size_t accumulator_size(DType dtype) {  // halves accumulate in float32
  return info(dtype).floating ? std::max<std::size_t>(size_of(dtype), 4) : size_of(dtype);
}

// Returns the number of memory streams of a single pass; an array that is source and target counts
// once.
std::size_t streams(std::span<void* const> targets, std::span<const void* const> sources) {
  std::size_t count = sources.size();
  for (const void* target : targets)
    if (std::find(sources.begin(), sources.end(), target) == sources.end()) ++count;
  return count;
}

// Works block by block: reduces groups of sources into a buffer (the carry), which stays in the L1
// cache, then writes the carry to groups of targets.
void run_in_groups(RunPass run, const Pass& all, std::size_t block) {
  alignas(64) std::byte carry[kCarryBytes];
  Pass part = all;
  for (std::size_t done = 0; done < all.count; done += block) {
    part.first = all.first + done;
    part.count = std::min(block, all.count - done);
    part.carry_out = carry;
    part.target_count = 0;
    for (std::size_t s = 0; s < all.source_count; s += kStreams) {
      part.carry_in = s == 0 ? nullptr : carry;
      part.sources = all.sources + s;
      part.source_count = std::min(kStreams, all.source_count - s);
      run(part);
    }
    part.carry_in = carry;
    part.carry_out = nullptr;
    part.source_count = 0;
    for (std::size_t t = 0; t < all.target_count; t += kStreams) {
      part.targets = all.targets + t;
      part.target_count = std::min(kStreams, all.target_count - t);
      run(part);
    }
  }
}

// Returns the number of elements before every target reaches a cache line's start, or `count` if
// their offsets differ.
std::size_t elements_to_line(std::span<void* const> targets, std::size_t size, std::size_t count) {
  const std::size_t phase = reinterpret_cast<std::uintptr_t>(targets[0]) % 64;
  for (const void* target : targets)
    if (reinterpret_cast<std::uintptr_t>(target) % 64 != phase) return count;
  const std::size_t bytes = (64 - phase) % 64;
  return bytes % size == 0 ? std::min(count, bytes / size) : count;
}

}  // namespace

bool reduces(DType dtype, Op op) { return op != Op::adasum && pass_for(dtype, op, false) != nullptr; }

void reduce(DType dtype, Op op, void* target, const void* first, const void* second, std::size_t count) {
  void* const targets[] = {target};
  const void* const sources[] = {first, second};
  pass_for(dtype, op, false)({.targets = targets,
                              .sources = sources,
                              .target_count = 1,
                              .source_count = 2,
                              .first = 0,
                              .count = count,
                              .pre = {},
                              .post = {}});
}

void adasum(DType dtype, void* target, const void* first, const void* second, std::size_t count) {
  const auto row = static_cast<std::size_t>(dtype);  // the floating dtypes are the first ones
  double dots[3];
  table().dots[row](first, second, count, dots);
  const auto share = [&dots](double square) { return square == 0 ? 1.0 : 1.0 - dots[0] / square * 0.5; };
  table().blend[row](target, first, second, count, share(dots[1]), share(dots[2]));
}

void scale(DType dtype, void* target, const void* source, std::size_t count, Scale by) {
  reduce_many(dtype, Op::sum, {&target, 1}, {&source, 1}, count, by, {});
}

void reduce_many(DType dtype, Op op, std::span<void* const> targets, std::span<const void* const> sources,
                 std::size_t count, Scale pre, Scale post, bool stream) {
  if (targets.empty() || sources.empty() || count == 0) return;
  const bool scaled = !pre.identity() || !post.identity();
  const bool plain = sources.size() == 1 && !scaled;
  if (plain && targets.size() == 1 && dtype != DType::boolean)
    return copy(targets[0], sources[0], count * size_of(dtype), stream);
  const RunPass run = plain ? table().rows[static_cast<std::size_t>(dtype)].plain : pass_for(dtype, op, scaled);
  const std::size_t size = size_of(dtype), block = kCarryBytes / accumulator_size(dtype);
  const bool grouped = sources.size() + targets.size() > kStreams && streams(targets, sources) > kStreams;
  Pass pass{.targets = targets.data(),
            .sources = sources.data(),
            .target_count = targets.size(),
            .source_count = sources.size(),
            .first = 0,
            .count = count,
            .pre = pre,
            .post = post};
  const auto sweep = [&](std::size_t from, std::size_t to, bool streaming) {
    pass.first = from;
    pass.count = to - from;
    pass.stream = streaming;
    if (grouped)
      run_in_groups(run, pass, block);
    else
      run(pass);
  };
  const auto fence = table().fence;
  const std::size_t head = stream && fence != nullptr ? elements_to_line(targets, size, count) : count;
  if (head > 0) sweep(0, head, false);
  if (head == count) return;
  sweep(head, count, true);
  fence();
}

void cast(DType to, void* target, DType from, const void* source, std::size_t count) {
  if (to == from) return copy(target, source, count * size_of(to));
  table().cast[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)](target, source, count);
}

constexpr std::size_t kLongString = 1024;  // bytes; from here on memcpy may be one instruction

void copy(void* target, const void* source, std::size_t nbytes, bool stream) {
  if (nbytes == 0 || target == source) return;
  if (stream && table().fence != nullptr) return table().copy_stream(target, source, nbytes);
  if (nbytes >= kLongString && slow_to_copy(target, source)) return table().copy_apart(target, source, nbytes);
  std::memcpy(target, source, nbytes);
}

void move(void* target, const void* source, std::size_t nbytes) {
  const auto to = reinterpret_cast<std::uintptr_t>(target), from = reinterpret_cast<std::uintptr_t>(source);
  if (to + nbytes <= from || from + nbytes <= to) return copy(target, source, nbytes);
  if (to != from) std::memmove(target, source, nbytes);
}

void copy_taking(void* target, void* source, std::size_t nbytes, bool stream) {
  if (nbytes > 0) table().copy_taking(target, source, nbytes, stream && table().fence != nullptr);
}

}  // namespace ringcomm::kernels
