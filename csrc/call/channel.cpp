#include "call/channel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/clock.hpp"
#include "base/rank_text.hpp"
#include "base/short_sleeps.hpp"
#include "call/adasum.hpp"
#include "call/call_task.hpp"
#include "call/gathered.hpp"
#include "call/moves.hpp"
#include "memory/payload.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr int kLooks = 64;                            // for messages, before sleeping
constexpr std::int64_t kYieldOnHost = 300'000;        // ns of waiting for ranks of this host before sleeping
constexpr std::int64_t kInterruptEvery = 50'000'000;  // ns between two looks for Ctrl-C, and at the clock

// When to say that nothing moves.
class StallClock {
 public:
  explicit StallClock(double seconds) : every_(static_cast<std::int64_t>(std::min(seconds, 9e9) * 1e9)) {}
  void moved() { since_ = 0; }
  // How long nothing has moved, each time that a warning is due; else 0.
  std::int64_t due(std::int64_t now) {
    if (since_ == 0) since_ = warned_ = now;
    if (every_ <= 0 || now - warned_ < every_) return 0;
    warned_ = now;
    return now - since_;
  }

 private:
  const std::int64_t every_;
  std::int64_t since_ = 0, warned_ = 0;
};

Terms terms_of(const ChannelConfig& config, const std::vector<int>& peers) {
  Terms terms{config.network, {}, {config.segment_bytes, config.window}, config.algorithm, config.rules};
  if (config.hosts.empty()) return terms;
  for (const int peer : peers) terms.hosts.push_back(config.hosts.at(static_cast<std::size_t>(peer)));
  return terms;
}

// Bytes of a rank's data that may ride with the comparison of calls by messages: as long as this costs no more time
// than the rounds that it saves: of small all-reduces, twice as many as hosts have bits. `received`: times these bytes,
// by a host's link; an all-reduce of its own would move 2 (h-1)/h.
std::size_t longest_riding(const Terms& terms, double hosts, double received) {
  const std::set<int> places(terms.hosts.begin(), terms.hosts.end());
  const LinkModel& link = places.size() == 1 ? terms.network.within : terms.network.between;
  const double more = received - 2 * (hosts - 1) / hosts;
  const double saved = 2 * std::ceil(std::log2(hosts)) * link.alpha;
  return static_cast<std::size_t>(std::clamp(saved / std::max(more * link.beta, 1e-15), 64.0, 1e9));
}

// By so many ranks or hosts, each on a link of its own.
double pieces_received(std::size_t from) {
  return Gathering::can_merge(from) ? std::log2(static_cast<double>(from)) : static_cast<double>(from - 1);
}

// Every rank of a host gets everybody's piece.
Riding flat_riding(const Terms& terms, std::size_t size) {
  const std::set<int> places(terms.hosts.begin(), terms.hosts.end());
  const double ranks = static_cast<double>(size),
               hosts = places.size() < 2 ? ranks : static_cast<double>(places.size());
  return {std::min(longest_reduced(size), longest_riding(terms, hosts, pieces_received(size) * (ranks / hosts))),
          std::min(kPayloadsTogether / size, longest_riding(terms, hosts, (ranks - 1) * (ranks / hosts)))};
}

// Data that is only moved comes to a host in any case.
Riding riding_by_hosts(const Terms& terms, const Hosts& hosts) {
  Riding most = most_on_boards(hosts);
  most.reduced = std::min(
      most.reduced, longest_riding(terms, hosts.number(), pieces_received(static_cast<std::size_t>(hosts.number()))));
  return most;
}

Memory memory_of(const Node* node, int size) {
  return !node ? Memory::none : node->size() == size ? Memory::everybodys : Memory::on_hosts;
}

}  // namespace

Channel::Channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
                 std::shared_ptr<Node> node, int slot, ChannelConfig config)
    : transport_(std::move(transport)), peers_(std::move(peers)), me_(me), tags_(tags), node_(std::move(node)),
      config_(std::move(config)), riding_(flat_riding(terms_of(config_, peers_), peers_.size())),
      chooser_(this->size(), memory_of(node_.get(), this->size()), terms_of(config_, peers_)) {
  if (node_ && size() > 1) epochs_ = std::make_unique<Epochs>(*node_, slot);
  if (epochs_ && !on_one_host()) hosts_ = Hosts(terms_of(config_, peers_).hosts, me_);
  if (compares_by_hosts()) {
    riding_ = riding_by_hosts(terms_of(config_, peers_), hosts_);
    if (config_.check) make_board(*node_, slot);
    for (const int rank : hosts_.lane(0)) speakers_.push_back(peers_[static_cast<std::size_t>(rank)]);
  }
  if (size() > 1) listen();
}

Channel::~Channel() {
  if (listening_ != kNoTicket) transport_->cancel(listening_);
}

const Choice& Channel::choice(const Call& call) {
  if (is_adasum(call) && size() > 1) return adasum_choice();
  const bool known = call.collective != Collective::alltoall || call.even;  // otherwise ranks have totals of their own
  return chooser_.choose(call.collective, call.algorithm, known ? bytes_of(call) : 0, call.even,
                         encoding_of(call.wire, call.dtype));
}

const Choice& Channel::choose(const Call& call) {
  static const Choice gathered{Path::gathered, nullptr, 0, {0, 1}, "gathered"};
  return gathers(call) ? gathered : choice(call);
}

// More than rides in mailboxes, and worked on in the host's memory.
bool Channel::takes_fragments(const Call& call) {
  return size() > 1 && on_one_host() && call.collective == Collective::allreduce && bytes_of(call) > kPayload &&
         choice(call).path == Path::shared;
}

bool Channel::gathers(const Call& call) const {
  const bool compared = size() > 1 && !on_one_host() && !call.agreed && config_.check;
  const bool free = call.algorithm.empty() && !is_adasum(call) && chooser_.free(call.collective);
  return compared && free &&
         can_piggyback(call.collective, call.dtype, call.count, call.counts, size(), riding_.of(call.collective));
}

std::unique_ptr<Comparison> Channel::comparison() {
  const int tag = tags_.next();
  if (!compares_by_hosts()) return make_flat_comparison(*transport_, peers_, me_, tag, riding_);
  return make_host_comparison(*epochs_, hosts_, *transport_, speakers_, tag, riding_);
}

std::shared_ptr<const Schedule> Channel::schedule(const Call& call, const Choice& choice) {
  const std::string what(name_of(call.collective));
  if (!choice.algorithm) {
    auto own = config_.own ? config_.own->find(call.collective, me_, size(), choice.name) : nullptr;
    if (own) return own;
    // Ranks that have joined know of a call only what the others say. That this one cannot take part concerns all.
    if (call.agreed && choice.name.find('#') != std::string::npos) {
      throw Error(ErrorKind::transport, what + " algorithm '" + choice.name +
                                            "' is not registered on a rank that has joined; register it on all ranks");
    }
    check_algorithm(call.collective, choice.name, size());
    throw Error(ErrorKind::invalid, what + " algorithm '" + choice.name + "' cannot run here: " +
                                        (AlgorithmName(choice.name).two_levels
                                             ? "it needs ranks on several hosts that share memory inside each"
                                         : choice.name == "shared" ? "not all ranks share memory"
                                                                   : "it needs blocks of one size on every rank"));
  }
  return schedules_.get(*choice.algorithm, me_, size(), choice.algorithm->any_root ? choice.root : call.root);
}

std::unique_ptr<Task> Channel::start(Call&& call) {
  if (broken_) throw *broken_;
  if (left_) throw Error(ErrorKind::shut_down, "this communicator is closed");
  if (call.root < 0 || call.root >= size()) {
    throw Error(ErrorKind::invalid, std::string(name_of(call.collective)) + ": root " + std::to_string(call.root) +
                                        " is not a rank of this communicator of " + std::to_string(size()));
  }
  if (is_adasum(call)) check_adasum(call);
  if (call.op == Op::average) call.post.divisor *= size();
  ++sequence_;
  return std::make_unique<CallTask>(*this, std::move(call));
}

void Channel::run(Call call, bool (*interrupted)()) {
  const auto task = start(std::move(call));
  // To look for messages takes long itself, and what else there is to do on this core may be the peer's to send them:
  // yield after each look, but not a second time.
  const bool yields = transport_->yields();
  Backoff backoff(100us, yields ? kLooks : 0, yields ? 0 : kLooks, 2);
  if (on_one_host()) {
    backoff = Backoff(100us);
    backoff.insist(config_.spin_ns, kYieldOnHost);
  }
  std::optional<ShortSleeps> short_sleeps;
  StallClock stall(config_.stall_warn_seconds);
  std::int64_t asked = 0;
  try {
    for (;;) {
      const Progress progress = task->advance();
      if (progress == Progress::done) return;
      if (progress == Progress::moved) {
        backoff.reset();
        stall.moved();
        continue;
      }
      const auto sleep = backoff.next();
      if (sleep.count() == 0) continue;
      if (!on_one_host() && !short_sleeps) short_sleeps.emplace();
      task->nap(sleep);
      const std::int64_t now = now_ns();
      if (asked == 0) asked = now;
      if (now - asked > kInterruptEvery) {
        asked = now;
        if (interrupted && interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
        if (const std::int64_t waited = stall.due(now)) warn(static_cast<const CallTask&>(*task).label(), waited);
      }
    }
  } catch (const Error& error) {
    task->abandon();
    if (error.kind() == ErrorKind::interrupted) {
      end_after(Error(ErrorKind::transport, "an earlier call on this communicator was interrupted"));
      if (epochs_) show_state(2);
    }
    throw;
  }
}

void Channel::end_after(const Error& error) {
  if (!error.fatal() && error.kind() != ErrorKind::left) return;
  if (!broken_) broken_ = error;
  // others of this host may wait for what this rank would have heard
  if (error.fatal() && compares_by_hosts()) show_state(2);
}

void Channel::warn(std::string_view call, std::int64_t waited_ns) const {
  const std::vector<int> behind = epochs_ ? epochs_->behind() : std::vector<int>{};
  const std::string who =
      behind.empty() ? "not all ranks have made this call" : rank_text(behind) + " have not come as far";
  std::fprintf(stderr, "ringcomm: rank %d waits in '%.*s', an ordered call, since %lld s: %s\n", me_,
               static_cast<int>(call.size()), call.data(), static_cast<long long>(waited_ns / 1'000'000'000),
               who.c_str());
}

void Channel::listen() {
  if (config_.goodbye_tag < 0) return;
  listening_ = transport_->receive(kAnyPeer, config_.goodbye_tag, &incoming_, sizeof incoming_);
}

void Channel::check_departures() {
  while (listening_ != kNoTicket && transport_->done(listening_)) {
    departed_.push_back(incoming_);
    listen();
  }
  std::vector<int> gone;
  for (const Goodbye& goodbye : departed_) {
    if (goodbye.calls < sequence_) gone.push_back(static_cast<int>(goodbye.rank));
  }
  if (gone.empty()) return;
  std::string who;
  for (const int rank : gone) who += (who.empty() ? "" : ", ") + std::to_string(rank);
  throw Error(ErrorKind::left,
              "rank " + who + " closed the communicator or ended its script, and takes part in no further call", gone);
}

void Channel::show_state(std::uint32_t state) {
  epochs_->mine().state.store(state, std::memory_order_release);
  epochs_->wake();
}

void Channel::leave() noexcept {
  if (left_ || size() == 1) return;
  left_ = true;
  if (epochs_) show_state(1);
  if (config_.goodbye_tag < 0) return;
  outgoing_ = {me_, sequence_};
  std::vector<Ticket> tickets;
  try {
    for (const int peer : peers_) {
      if (peer != transport_->rank())
        tickets.push_back(transport_->send(peer, config_.goodbye_tag, &outgoing_, sizeof outgoing_));
    }
    // a few bytes: they are on their way at once, or the peer is gone
    const std::int64_t deadline = now_ns() + 1'000'000'000;
    while (!tickets.empty() && now_ns() < deadline) {
      transport_->poll();
      std::erase_if(tickets, [&](Ticket ticket) { return transport_->done(ticket); });
    }
  } catch (const Error&) {  // nobody to say goodbye to
  }
  for (const Ticket ticket : tickets) transport_->cancel(ticket);
}

std::vector<int> Channel::everyone() const {
  std::vector<int> ranks(peers_.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  return ranks;
}

}  // namespace ringcomm
