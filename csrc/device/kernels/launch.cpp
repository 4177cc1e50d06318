// Selects kernels by dtype and op, and computes their parameters.
#include "device/kernels/launch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ringcomm::gpu {
namespace {

constexpr std::uint64_t kLeastChunk = 1 << 14;  // bytes; in smaller chunks, finding the tensor costs too much

std::string identifier(DType dtype) {  // "(int16, int32)" -> int16_int32
  std::string text;
  for (const char c : info(dtype).name)
    if (c == ',')
      text += '_';
    else if (c != '(' && c != ')' && c != ' ')
      text += c;
  return text;
}

bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }
bool is_located(DType dtype) { return dtype > DType::complex128; }
bool is_integer(DType dtype) { return dtype >= DType::int8 && dtype <= DType::uint64; }
DType part_of(DType complex) { return complex == DType::complex64 ? DType::float32 : DType::float64; }
DType without_sign(DType dtype) {
  return dtype >= DType::int8 && dtype <= DType::int64
             ? static_cast<DType>(static_cast<int>(dtype) - static_cast<int>(DType::int8) +
                                  static_cast<int>(DType::uint8))
             : dtype;
}
std::string_view module_of(DType dtype) {
  return info(dtype).floating ? info(dtype).name : dtype <= DType::boolean ? "integers" : "composites";
}

Op boolean_op(Op op) {  // all operations on booleans are logical
  switch (op) {
    case Op::min:
    case Op::product:
    case Op::band:
    case Op::land:
      return Op::land;
    case Op::bxor:
    case Op::lxor:
      return Op::lxor;
    default:
      return Op::lor;
  }
}

}  // namespace

Entry reduce_entry(DType dtype, Op op) {
  if (op == Op::average) op = Op::sum;
  if (is_complex(dtype) && op == Op::sum) {
    Entry entry = reduce_entry(part_of(dtype), op);
    entry.parts = 2;
    return entry;
  }
  if (dtype == DType::boolean) op = boolean_op(op);
  if (op >= Op::band && op <= Op::lxor) dtype = without_sign(dtype);
  return {"rc_reduce_" + identifier(dtype) + "_" + std::string(name_of(op)), module_of(dtype)};
}

Entry pack_entry(DType from, DType to) {
  unsigned parts = 1;
  if (is_complex(from)) {
    from = to = part_of(from);
    parts = 2;
  } else if (is_located(from)) {
    from = to = size_of(from) == 8 ? DType::uint32 : DType::uint64;
    parts = 2;
  } else if (from == DType::boolean) {
    from = to = DType::uint8;
  }
  return {"rc_pack_" + identifier(from) + "_" + identifier(to), module_of(from), parts};
}

Entry scale_entry(DType dtype) {
  return dtype == DType::boolean ? Entry{"rc_pack_bool_bool", "integers"} : pack_entry(dtype, dtype);
}

DType scaled_in(DType from, DType to) {
  if (!info(from).floating || from == to) return from;
  return from == DType::float64 || to == DType::float64 ? DType::float64 : DType::float32;
}

// Follows FloatLane's Scaler (kernels/body/lanes.inl): one product if F represents factor / divisor
// exactly.
template <class F>
static Scaling floating_scaling(kernels::Scale by) {
  const auto whole = static_cast<double>(by.divisor);
  const F ratio = static_cast<F>(by.factor / whole);
  const bool divides = by.divisor != 1 && std::fma(static_cast<double>(ratio), whole, -by.factor) != 0.0;
  return {divides ? static_cast<F>(by.factor) : ratio, by.divisor, divides ? kDivides : kMultiplies, 0};
}

Scaling scaling_of(DType dtype, kernels::Scale by) {
  if (by.identity() || dtype == DType::boolean || is_located(dtype)) return {1.0, 1, kUnscaled, 0};
  if (is_integer(dtype)) return {by.factor, by.divisor, kAsIntegers, 0};
  if (dtype == DType::float64 || dtype == DType::complex128) return floating_scaling<double>(by);
  return floating_scaling<float>(by);
}

unsigned plan_pack(PackParameters& parameters, std::span<const Tensor> tensors, unsigned size, unsigned blocks) {
  const auto some = static_cast<unsigned>(std::min<std::size_t>(tensors.size(), kMostTensors));
  std::uint64_t all = 0;
  for (const Tensor& tensor : tensors.first(some)) all += tensor.count;
  // Chunks have equal size. The number of rounds keeps them under four times the smallest size. A
  // chunk is a multiple of 16 bytes, so that all chunks keep the tensors' alignment.
  const std::uint64_t least = kLeastChunk / size, rounds = all / (least * 4 * blocks) + 1;
  const std::uint64_t equal = all / (rounds * blocks) + 1, whole = 16 / size;
  parameters.chunk = std::max(least, (equal + whole - 1) / whole * whole);
  parameters.tensor_count = some;
  unsigned chunks = 0;
  for (unsigned t = 0; t < some; ++t) {
    parameters.sources[t] = tensors[t].source;
    parameters.destinations[t] = tensors[t].destination;
    parameters.counts[t] = tensors[t].count;
    parameters.first_chunk[t] = chunks;
    chunks += static_cast<unsigned>((tensors[t].count + parameters.chunk - 1) / parameters.chunk);
  }
  parameters.first_chunk[some] = chunks;
  return some;
}

StridedParameters strided_parameters(const void* source, void* destination, std::span<const Dimension> dimensions,
                                     unsigned size) {
  std::uint64_t all =
      8 | size | reinterpret_cast<std::uintptr_t>(source) | reinterpret_cast<std::uintptr_t>(destination);
  for (const Dimension& one : dimensions)
    if (one.length > 1) all |= static_cast<std::uint64_t>(one.source | one.destination);
  StridedParameters made{source, destination, 1, {}, {}, {}, 0, 1u << std::countr_zero(all)};
  const auto add = [&](const Dimension& one) {
    made.count *= one.length;
    if (one.length == 1) return;
    const auto length = static_cast<std::int64_t>(one.length);
    const unsigned last = made.dimensions - 1;
    const bool goes_on = made.dimensions > 0 && made.source_strides[last] == one.source * length &&
                         made.destination_strides[last] == one.destination * length;
    const unsigned at = goes_on ? last : made.dimensions++;
    made.shape[at] = goes_on ? made.shape[at] * one.length : one.length;
    made.source_strides[at] = one.source;
    made.destination_strides[at] = one.destination;
  };
  for (const Dimension& one : dimensions) add(one);
  add({size / made.unit, made.unit, made.unit});
  return made;
}

FillParameters fill_parameters(void* destination, std::uint64_t count, const void* element, unsigned size) {
  FillParameters parameters{destination, count * size, {}};
  for (unsigned at = 0; at < sizeof parameters.pattern; at += size) std::memcpy(parameters.pattern + at, element, size);
  return parameters;
}

unsigned blocks_for(std::uint64_t nbytes, unsigned most) {
  const std::uint64_t wanted = nbytes / (kThreads * 16) + 1;
  return static_cast<unsigned>(std::min<std::uint64_t>(wanted, std::max(most, 1u)));
}

}  // namespace ringcomm::gpu
