// Implements a codec that measures and traces another codec.
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/trace.hpp"
#include "codecs/wire_format.hpp"

namespace ringcomm {
namespace {

class WatchedCodec final : public Codec {
 public:
  WatchedCodec(std::shared_ptr<Codec> codec, Count& ns) : codec_(std::move(codec)), ns_(ns) {}

  std::size_t capacity(std::size_t count) const override { return codec_->capacity(count); }

  std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) override {
    const std::int64_t begun = now_ns();
    const std::size_t nbytes = codec_->encode(key, block, count, wire);
    ended("encode", begun, nbytes);
    return nbytes;
  }
  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) override {
    const std::int64_t begun = now_ns();
    codec_->decode(wire, nbytes, block, count);
    ended("decode", begun, nbytes);
  }
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                     bool incoming_first) override {
    const std::int64_t begun = now_ns();
    codec_->decode_reduce(wire, nbytes, block, count, op, incoming_first);
    ended("decode", begun, nbytes);
  }

 private:
  void ended(std::string_view category, std::int64_t begun, std::size_t nbytes) {
    ns_ += static_cast<std::uint64_t>(now_ns() - begun);
    trace_lane(category, {}, begun, nbytes, -1);
  }

  const std::shared_ptr<Codec> codec_;
  Count& ns_;
};

}  // namespace

std::shared_ptr<Codec> make_watched_codec(std::shared_ptr<Codec> codec, Count& ns) {
  return std::make_shared<WatchedCodec>(std::move(codec), ns);
}

}  // namespace ringcomm
