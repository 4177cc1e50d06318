#include "messages/instance.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t aligned(std::size_t nbytes) { return (nbytes + 63) & ~std::size_t{63}; }

}  // namespace

void Instance::open(std::size_t segment, int tag) {
  segment_ = segment;
  tag_ = tag;
  round_ = 0;
  trace_begin();
  find_extents();
  if (finished()) {
    fill();
    finish();
    return;
  }
  prepare(0);
  post_receives(0, true);
  fill();
  begin_round();
}

void Instance::find_extents() {
  const Schedule& schedule = *context_.schedule;
  const auto blocks = static_cast<std::size_t>(schedule.blocks);
  extents_.resize(blocks + schedule.temps.size());
  for (std::size_t b = 0; b < blocks; ++b) extents_[b] = context_.layout.at(b, segment_);
  std::size_t room = 0;
  for (const int mirrored : schedule.temps) room += aligned(bytes_of(extent(mirrored)));
  temporaries_.require(room);
  std::byte* free = temporaries_.data();
  for (std::size_t t = 0; t < schedule.temps.size(); ++t) {
    const std::size_t count = extent(schedule.temps[t]).count;
    extents_[blocks + t] = {free, count};
    free += aligned(count * context_.layout.item_size());
  }
  make_room_for_encodings();
}

void Instance::make_room_for_encodings() {
  const std::vector<char>& kept = context_.encodings.kept;
  const auto capacity = [&](std::size_t b) {
    return kept[b] && extents_[b].count > 0 ? aligned(context_.options.codec->capacity(extents_[b].count)) : 0;
  };
  kept_.assign(kept.size(), {});
  std::size_t room = 0;
  for (std::size_t b = 0; b < kept.size(); ++b) room += capacity(b);
  encodings_.require(room);
  std::byte* free = encodings_.data();
  for (std::size_t b = 0; b < kept.size(); ++b) {
    kept_[b].data = free;
    free += capacity(b);
  }
}

void Instance::fill() {
  if (!context_.fills()) return;
  const Extent whole = context_.layout.segment(segment_);
  if (whole.count == 0) return;
  const std::byte* from = whole.data;
  if (context_.source) from = context_.source + (whole.data - context_.layout.segment(0).data);
  const RunOptions& options = context_.options;
  if (options.pre.identity()) {
    kernels::copy(whole.data, from, bytes_of(whole));
  } else {
    kernels::scale(options.dtype, whole.data, from, whole.count, options.pre);
  }
}

void Instance::finish() {
  const RunOptions& options = context_.options;
  for (const std::int32_t block : context_.encodings.unsettled) settle(block);
  if (options.post.identity()) return;
  const Extent whole = context_.layout.segment(segment_);
  if (whole.count > 0) kernels::scale(options.dtype, whole.data, whole.data, whole.count, options.post);
}

void Instance::settle(std::int32_t block) {
  if (extent(block).count == 0) return;
  Staging& staging = stages_[0].memory;  // nothing is under way any more
  staging.require(context_.options.codec->capacity(extent(block).count));
  encode_block(block, staging.data());
}

// Finds where the messages of a round will lie, and has memory for those that do not lie in blocks.
void Instance::prepare(std::size_t round) {
  const RoundProgram& now = program(round);
  const std::vector<Message>& messages = context_.program.messages;
  Stage& stage = this->stage(round);
  stage.incoming.assign(now.end - now.first_receive, {});
  stage.arrived.assign(now.end_piece - now.first_received_piece, {});
  std::size_t room = 0;
  for (std::uint32_t m = now.first_receive; m < now.end; ++m) {
    Incoming& incoming = stage.incoming[m - now.first_receive];
    incoming.nbytes = wire_bytes(messages[m]);
    Bytes whole;
    incoming.in_place = !context_.options.codec && messages[m].plain && contiguous(messages[m], whole);
    if (incoming.in_place)
      incoming.data = whole.data;
    else
      room += aligned(incoming.nbytes);
  }
  stage.sends_from = room;
  for (std::uint32_t m = now.first_send; m < now.first_receive; ++m) {
    Bytes whole;
    if (context_.options.codec || !contiguous(messages[m], whole)) room += aligned(wire_bytes(messages[m]));
  }
  stage.memory.require(room);
  std::byte* free = stage.memory.data();
  for (Incoming& incoming : stage.incoming) {
    if (incoming.in_place) continue;
    incoming.data = free;
    free += aligned(incoming.nbytes);
  }
  if (!context_.options.codec) point_pieces(round);
}

void Instance::point_pieces(std::size_t round) {
  const RoundProgram& now = program(round);
  Stage& stage = this->stage(round);
  for (std::uint32_t m = now.first_receive; m < now.end; ++m) {
    const Message& message = context_.program.messages[m];
    const Incoming& incoming = stage.incoming[m - now.first_receive];
    if (incoming.in_place) continue;
    std::byte* data = incoming.data;
    for (std::uint32_t p = message.first; p < message.last; ++p) {
      stage.arrived[p - now.first_received_piece] = {data, bytes_of(extent_of(p))};
      data += bytes_of(extent_of(p));
    }
  }
}

// `early`: while the round before still runs, only what lands where that round neither reads nor writes.
void Instance::post_receives(std::size_t round, bool early) {
  const RoundProgram& now = program(round);
  Stage& stage = this->stage(round);
  for (std::uint32_t m = now.first_receive; m < now.end; ++m) {
    const Message& message = context_.program.messages[m];
    const std::uint32_t index = m - now.first_receive;
    Incoming& incoming = stage.incoming[index];
    if (incoming.posted || (early && incoming.in_place && !message.untouched)) continue;
    incoming.posted = true;
    const int peer = context_.peers[static_cast<std::size_t>(message.peer)];
    for (std::size_t at = 0; at < incoming.nbytes;) {
      const std::size_t chunk = std::min(incoming.nbytes - at, context_.options.longest_message);
      stage.flights.push_back({kNoTicket, index, chunk, false});
      stage.flights.back().ticket = context_.transport.receive(peer, tag_, incoming.data + at, chunk);
      ++incoming.pending;
      at += chunk;
    }
  }
}

void Instance::begin_round() {
  post_receives(round_, false);
  post_sends();
  write_ = program(round_).first_write;
  if (round_ + 1 < context_.program.rounds.size()) {
    prepare(round_ + 1);
    post_receives(round_ + 1, true);
  }
}

void Instance::post_sends() {
  const RoundProgram& now = program(round_);
  if (context_.options.codec) encoded_.assign(now.first_received_piece - now.first_sent_piece, {});
  std::byte* free = stage(round_).memory.data() + stage(round_).sends_from;
  for (std::uint32_t m = now.first_send; m < now.first_receive; ++m) post_send(context_.program.messages[m], free);
}

void Instance::post_send(const Message& message, std::byte*& free) {
  const std::size_t capacity = wire_bytes(message);
  if (capacity == 0) return;
  Bytes bytes;
  const bool in_place = !context_.options.codec && contiguous(message, bytes);
  if (!in_place) {
    bytes = context_.options.codec ? encode(message, free) : pack(message, free);
    free += aligned(capacity);
  }
  fly(message, bytes, capacity, in_place);
}

// The receiver knows the capacity and not what an encoder makes of it, so both cut by the capacity; the last chunks may
// be short or empty.
void Instance::fly(const Message& message, Bytes bytes, std::size_t capacity, bool in_place) {
  const std::size_t longest = context_.options.longest_message;
  const int peer = context_.peers[static_cast<std::size_t>(message.peer)];
  for (std::size_t at = 0; at < capacity; at += std::min(longest, capacity - at)) {
    const std::size_t begin = std::min(at, bytes.nbytes);
    const std::size_t chunk = std::min(longest, bytes.nbytes - begin);
    sends_.push_back({kNoTicket, 0, chunk, in_place});
    sends_.back().ticket = context_.transport.send(peer, tag_, bytes.data + begin, chunk);
    reading_blocks_ += in_place;
  }
}

bool Instance::collect(std::vector<Flight>& flights, bool receiving) {
  bool moved = false;
  for (std::size_t i = 0; i < flights.size();) {
    const Flight flight = flights[i];
    Arrival arrival;
    try {
      if (!context_.transport.done(flight.ticket, &arrival)) {
        ++i;
        continue;
      }
    } catch (...) {
      flights[i].ticket = kNoTicket;  // gone
      throw;
    }
    flights[i] = flights.back();
    flights.pop_back();
    moved = true;
    if (receiving)
      receive(flight, arrival);
    else
      reading_blocks_ -= flight.in_place;
  }
  return moved;
}

void Instance::receive(const Flight& flight, const Arrival& arrival) {
  Stage& stage = this->stage(round_);
  Incoming& incoming = stage.incoming[flight.message];
  if (!context_.options.codec && arrival.nbytes != flight.nbytes) {
    throw Error(ErrorKind::mismatch,
                "rank " + std::to_string(arrival.peer) + " sent " + std::to_string(arrival.nbytes) +
                    " bytes where rank " + std::to_string(context_.transport.rank()) + " expected " +
                    std::to_string(flight.nbytes) + ": the ranks disagree on the size of the data",
                {arrival.peer});
  }
  incoming.arrived += arrival.nbytes;
  if (--incoming.pending == 0 && context_.options.codec) find_pieces(stage, flight.message);
}

bool Instance::advance() {
  bool moved = false;
  while (!finished()) {
    moved |= collect(stage(round_).flights, true);
    moved |= collect(sends_, false);
    moved |= run_writes();
    if (write_ < program(round_).end_write || !sends_.empty() || !stage(round_).flights.empty()) return moved;
    moved = true;
    ++round_;
    trace_round();
    if (finished())
      finish();
    else
      begin_round();
  }
  return moved;
}

void Instance::abandon() noexcept {
  bool any = false;
  const auto give_up = [&](std::vector<Flight>& flights) {
    for (const Flight& flight : flights) {
      any = true;
      try {
        context_.transport.cancel(flight.ticket);
      } catch (const std::exception&) {  // it cannot be helped
      }
    }
    flights.clear();
  };
  for (Stage& stage : stages_) give_up(stage.flights);
  give_up(sends_);
  if (!any || context_.transport.in_flight() == 0) return;
  for (Stage& stage : stages_) stage.memory.strand();
  temporaries_.strand();
  decoded_.strand();
}

}  // namespace ringcomm
