// Implements the cast codec: blocks are sent in a narrower floating dtype, rounded on encoding.
#include "codecs/cast_codec.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

class CastCodec final : public Codec {
 public:
  CastCodec(DType data, DType wire) : data_(data), wire_(wire) {}

  std::size_t capacity(std::size_t count) const override { return count * size_of(wire_); }

  std::size_t encode(const CodecKey&, void* block, std::size_t count, void* wire) override {
    kernels::cast(wire_, wire, data_, block, count);
    kernels::cast(data_, block, wire_, wire, count);
    return capacity(count);
  }

  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) override {
    check(nbytes, count);
    kernels::cast(data_, block, wire_, wire, count);
  }

  // Works on pieces that stay in the L1 cache: reads wire and block once, writes the block once.
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                     bool incoming_first) override {
    check(nbytes, count);
    alignas(64) std::byte decoded[kPiece * sizeof(double)];
    const auto* from = static_cast<const std::byte*>(wire);
    auto* to = static_cast<std::byte*>(block);
    for (std::size_t done = 0; done < count; done += kPiece) {
      const std::size_t some = std::min(kPiece, count - done);
      std::byte* const part = to + done * size_of(data_);
      kernels::cast(data_, decoded, wire_, from + done * size_of(wire_), some);
      kernels::reduce(data_, op, part, incoming_first ? decoded : part, incoming_first ? part : decoded, some);
    }
  }

 private:
  static constexpr std::size_t kPiece = 512;

  void check(std::size_t nbytes, std::size_t count) const {
    if (nbytes == capacity(count)) return;
    throw Error(ErrorKind::transport, "a received block of " + std::to_string(count) + " " +
                                          std::string(info(wire_).name) + " elements has " + std::to_string(nbytes) +
                                          " bytes, not " + std::to_string(capacity(count)));
  }

  DType data_, wire_;
};

}  // namespace

std::unique_ptr<Codec> make_cast_codec(DType data, DType wire) {
  if (!info(data).floating || !info(wire).floating || size_of(wire) >= size_of(data))
    throw Error(ErrorKind::invalid,
                std::string(info(data).name) + " data cannot be sent as " + std::string(info(wire).name) +
                    ": the wire dtype must be a narrower floating dtype (float16, bfloat16, or float32 for float64)");
  return std::make_unique<CastCodec>(data, wire);
}

}  // namespace ringcomm
