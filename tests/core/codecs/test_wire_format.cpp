// Tests the table of wire formats, the choice of algorithm for encoded data, and the schedules that
// an encoder with rank-specific output allows.
#include <algorithm>
#include <cstring>
#include <string>

#include "codecs/wire_format.hpp"
#include "collectives/channel.hpp"
#include "schedule/prove.hpp"
#include "schedules.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

const Network kNetwork{{2e-5, 8e-10, 1e-6, 0}, {1e-6, 2e-10, 1e-6, 0}, 1e-10, 1e-10};

void the_table() {
  for (const WireFormat& format : wire_formats()) {
    const Wire wire = find_wire(format.name);
    CHECK(wire && known(wire) && name_of(wire) == format.name && Wire::of(wire.code()) == wire);
    CHECK(encoding_of(wire, DType::int32) == Encoding{} && !make_codec(wire, DType::int32));
    for (const DType data : {DType::float16, DType::float32, DType::float64}) {
      const double ratio = encoding_of(wire, data).ratio;
      const auto codec = make_codec(wire, data);
      CHECK((codec != nullptr) == (ratio < 1));
      if (codec && format.rounds)
        CHECK(codec->capacity(1000) == static_cast<std::size_t>(1000 * ratio) * size_of(data));
    }
  }
  CHECK(!Wire{} && known({}) && encoding_of({}, DType::float32) == Encoding{} && Wire{}.code() == 0);
  CHECK(!known({200}));
  try {
    find_wire("float8");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid && std::string(error.what()).find("bfloat16") != std::string::npos);
  }
}

// Checks that equal numbers of bytes on the wire get equal prices, whatever they encode.
void bytes_on_the_wire_are_priced() {
  const Encoding half = encoding_of(find_wire("bfloat16"), DType::float32);
  for (const int size : {2, 4, 8}) {
    Menu menu(Collective::allreduce, size, {}, kNetwork);
    for (std::size_t nbytes = 64; nbytes <= std::size_t{1} << 28; nbytes *= 4) {
      const auto dense = menu.options("", nbytes, true), narrow = menu.options("", 2 * nbytes, true, false, {}, half);
      CHECK(dense.size() == narrow.size());
      for (std::size_t i = 0; i < dense.size(); ++i) {
        CHECK(narrow[i].price.bytes == dense[i].price.bytes);
        CHECK(narrow[i].price.seconds > dense[i].price.seconds);  // encoding takes time, and more elements are reduced
      }
    }
    const auto whole = menu.options("ring", 64 << 20, true),
               sent = menu.options("ring", 64 << 20, true, false, {}, half);
    CHECK(sent[0].price.bytes == whole[0].price.bytes / 2 && sent[0].price.reduced == whole[0].price.reduced);
    CHECK(sent[0].price.seconds < whole[0].price.seconds);
    const auto fixed = menu.options("ring", 64 << 20, true, false, {1 << 20, 2}, half);
    CHECK(fixed[0].cut == whole[0].cut || (fixed[0].cut == ringcomm::Cut{1 << 20, 2}));  // a given cut is kept
  }
}

// Checks that a channel prices the bytes that a call sends.
void a_channel_prices_the_wire() {
  const auto hub = make_threads_hub(2);
  on_ranks(2, [&](int rank) {
    ChannelConfig config;
    config.network = kNetwork;
    Channel channel(make_threads_transport(hub, rank), {0, 1}, rank, TagStream(1, 100), nullptr, 0, config);
    Call call;
    call.count = 16 << 20;
    call.algorithm = "ring";
    const std::size_t dense = channel.choose(call).cut.segment;
    call.wire = find_wire("bfloat16");
    CHECK(channel.choose(call).cut.segment == 2 * dense);
    call.dtype = DType::int32;  // its wire format is not shortened
    CHECK(channel.choose(call).cut.segment == dense);
  });
}

// A codec that adds the rank to the data, as an encoder adds its rank's residual.
class OwnBytes final : public Codec {
 public:
  explicit OwnBytes(int rank) : rank_(rank) {}
  std::size_t capacity(std::size_t count) const override { return count * sizeof(float); }
  std::size_t encode(const CodecKey&, void* block, std::size_t count, void* wire) override {
    for (std::size_t i = 0; i < count; ++i) static_cast<float*>(block)[i] += static_cast<float>(rank_ + 1);
    std::memcpy(wire, block, capacity(count));
    return capacity(count);
  }
  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t) override {
    std::memcpy(block, wire, nbytes);
  }
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op, bool first) override {
    std::vector<float> decoded(count);
    decode(wire, nbytes, decoded.data(), count);
    kernels::reduce(DType::float32, op, block, first ? decoded.data() : block, first ? block : decoded.data(), count);
  }

 private:
  const int rank_;
};

bool equal_with_own_bytes(const Algorithm& algorithm, int size) {
  constexpr std::size_t kCount = 300;
  std::vector<std::vector<float>> results(static_cast<std::size_t>(size), std::vector<float>(kCount));
  on_seats(size, [&](Seat& seat) {
    std::vector<float>& data = results[static_cast<std::size_t>(seat.rank)];
    const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, size);
    RunOptions options = options_of({200, 2, 333}, DType::float32);
    options.codec = std::make_shared<OwnBytes>(seat.rank);
    options.canonicalizes = false;
    seat.run(schedule, Layout::even(data.data(), kCount, schedule->blocks, sizeof(float), 200), nullptr, options);
  });
  return std::all_of(results.begin(), results.end(), [&](const auto& result) { return result == results[0]; });
}

// Counts the schedules that are marked as encoding each element once; others may have equal bits
// too, but encode partial sums.
void what_is_encoded_once() {
  int with = 0, without = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::allreduce) continue;
    for (int size = 1; size <= 9; ++size) {
      std::vector<Schedule> schedules;
      for (int rank = 0; rank < size; ++rank) schedules.push_back(algorithm.make(rank, size, 0));
      const bool once = encodes_once(schedules);
      CHECK(!once || equal_with_own_bytes(algorithm, size));
      ++(once ? with : without);
      const bool of_three =
          algorithm.name == "circulant" || algorithm.name == "tree" || algorithm.name == "bine_halving";
      CHECK(once == (algorithm.direct || size < 3 || (of_three && size == 3)));
    }
  }
  CHECK(with > 0 && without > 0);
  Menu menu(Collective::allreduce, 8, {}, kNetwork);
  const Encoding own{.5, 1, false};
  CHECK(menu.options("butterfly_doubling", 1 << 20, true, false, {}, own).empty());
  CHECK(menu.options("", 1 << 20, true, false, {}, own).size() == 3);
}

}  // namespace

int main() {
  the_table();
  bytes_on_the_wire_are_priced();
  a_channel_prices_the_wire();
  what_is_encoded_once();
}
