// Computes the price of a schedule. A round takes the sum of four times: alpha; the transfer on the
// busiest link, except what alpha hides; gap for each further message; gamma for each byte that its
// rank reduces. The two directions of a link work at the same time.
// On a topology, the transfer is that of the round's messages, which share links.
//
// One instance takes the sum of its rounds. Several instances in flight overlap: some wait while
// others transfer. The busiest resource (a direction of a link, a rank's processor) then sets the
// pace. This resource works through all segments without pause. It starts when an instance first
// needs it; after its last work the last instance still has to finish.
#include "schedule/price.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/tuned.hpp"

namespace ringcomm {
namespace {

class Pricer {
 public:
  Pricer(const Profile& profile, double block_bytes, const Network& network)
      : profile_(profile), block_(block_bytes), net_(network) {
    double begun = 0;
    std::size_t round = 0;
    std::map<int, double> transfers;  // time of one instance, by the kind of the busiest links
    for (const Profile::Run& run : profile.runs) {
      Timed timed{round, begun, 0, 0};
      for (const Load& load : run.loads) {
        const double transfer = wire(run, load);
        timed.seconds = std::max(timed.seconds, seconds(run, load));
        timed.rest = std::max(timed.rest, seconds(run, load) - transfer);
        longest_ = std::max(longest_, transfer);
        latency_ = std::max(latency_, link(load).alpha);
      }
      if (run.transfer.kind >= 0)
        transfers[run.transfer.kind] += static_cast<double>(run.rounds) * bytes(1) * run.transfer.time;
      begun += static_cast<double>(run.rounds) * timed.seconds;
      round += run.rounds;
      timed_.push_back(timed);
    }
    coding_ = net_.coding * bytes(profile.sent);
    alone_ = begun + coding_;
    for (const Profile::Usage& host : profile.hosts) add_works(host);
    for (const Profile::Shared& link : profile.shared)
      works_.push_back({bytes(1) * link.work * net_.between.beta, link.span, link.kind});
    double rest = alone_;
    for (const auto& [kind, time] : transfers) {
      transfers_.push_back({time * net_.between.beta, {}, kind});
      rest -= transfers_.back().seconds;
    }
    transfers_.push_back({rest, {}});
  }

  double alone() const { return alone_; }  // seconds of one instance

  // Returns the longest time that any resource works for one instance.
  double pace() const { return works_.empty() ? 0 : std::ranges::max(works_, {}, &Work::seconds).seconds; }

  // Returns the kind of links that take most of the time: of one instance, or of many in flight.
  int kind(bool many) const {
    const std::vector<Work>& works = many ? works_ : transfers_;
    return works.empty() ? -1 : std::ranges::max(works, {}, &Work::seconds).kind;
  }

  // Returns the seconds of `instances` instances that are all in flight.
  double together(double instances) const {
    if (instances <= 1) return alone_;
    double most = alone_ + (instances - 1) * longest_;
    for (const Work& work : works_)
      most = std::max(most, before(work.span) + instances * work.seconds + after(work.span));
    return most;
  }

  // Returns the pipeline skew: how much later the last rank of a dependency chain finishes than one
  // instance predicts. In a window of instances a message crosses each distance 1, 2, 4, ... once.
  // The next window continues the chain where the previous one ended.
  double behind(std::size_t windows) const {
    std::size_t messages = 0, left = profile_.lag;
    for (std::size_t distance = 1; distance <= left; distance *= 2) {
      const std::size_t now = std::min(windows, left / distance);
      messages += now;
      left -= now * distance;
    }
    return messages > profile_.rounds ? static_cast<double>(messages - profile_.rounds) * latency_ : 0;
  }

 private:
  struct Timed {                  // a run of rounds
    std::size_t round;            // index of the first round
    double begun, seconds, rest;  // rest: seconds of a round in which its link is free
  };
  struct Work {
    double seconds;
    Span span;
    int kind = -1;
  };

  double bytes(std::uint64_t blocks) const { return static_cast<double>(blocks) * block_; }
  const LinkModel& link(const Load& load) const { return load.out + load.in > 0 ? net_.between : net_.within; }
  double wire(const Profile::Run& run, const Load& load) const {
    if (profile_.contended) return load.sends + load.takes > 0 ? bytes(1) * run.transfer.time * net_.between.beta : 0;
    const double across = bytes(std::max(load.out, load.in)) * net_.between.beta;
    return std::max(across, bytes(std::max(load.gives, load.gets)) * net_.within.beta);
  }
  double seconds(const Profile::Run& run, const Load& load) const {
    const auto messages = static_cast<double>(std::max(load.sends, load.takes));
    const double reducing = net_.gamma * bytes(load.reduced);
    if (messages == 0) return reducing;
    const LinkModel& slowest = link(load);
    const auto beyond_latency = [&](double seconds) { return std::max(0.0, seconds - slowest.hidden); };
    const double transfer = beyond_latency(wire(run, load));
    // Messages from different distances reach a shared link one after another. So they wait for the
    // hops or for each other, but not for both (docs/simulate.md compares with packets).
    const double latency = run.transfer.latency;
    const double hops = latency > 0 ? latency + beyond_latency(bytes(1) * run.transfer.alone * net_.between.beta) : 0;
    return slowest.alpha + std::max(transfer, hops) + (messages - 1) * slowest.gap + reducing;
  }
  void add_works(const Profile::Usage& host) {
    const auto add = [&](double seconds, const Span& span) {
      if (seconds > 0) works_.push_back({seconds, span});
    };
    const Load& t = host.total;
    if (!profile_.contended) {
      add(bytes(t.out) * net_.between.beta, host.out);
      add(bytes(t.in) * net_.between.beta, host.in);
      add(bytes(std::max(t.gives, t.gets)) * net_.within.beta, host.any);
    }
    add(static_cast<double>(std::max(t.sends, t.takes)) * link(t).gap + net_.gamma * bytes(t.reduced) + coding_,
        host.any);
  }

  const Timed& run_at(std::size_t round) const {
    const auto next = std::upper_bound(timed_.begin(), timed_.end(), round,
                                       [](std::size_t r, const Timed& t) { return r < t.round; });
    return *std::prev(next);
  }
  double time_at(std::size_t round) const {  // when the round begins
    if (round >= profile_.rounds) return alone_;
    const Timed& run = run_at(round);
    return run.begun + static_cast<double>(round - run.round) * run.seconds;
  }
  double before(const Span& span) const { return time_at(span.first); }
  double after(const Span& span) const { return alone_ - time_at(span.end) + run_at(span.end - 1).rest; }

  const Profile& profile_;
  double block_;
  const Network& net_;
  std::vector<Timed> timed_;
  std::vector<Work> works_;      // work of each resource for one instance
  std::vector<Work> transfers_;  // kinds of links, and the rest of one instance's time
  double alone_ = 0, longest_ = 0, latency_ = 0, coding_ = 0;
};

std::size_t segments_of(std::size_t nbytes, std::size_t segment) {
  return segment == 0 || nbytes <= segment ? 1 : (nbytes + segment - 1) / segment;
}

// Returns the segment sizes to consider; the usual size first.
std::vector<std::size_t> segments_to_try(const Profile& profile, std::size_t nbytes, std::size_t given) {
  if (given > 0) return {given};
  if (profile.collective == Collective::barrier) return {0};
  constexpr std::size_t kTiny = 1 << 10;  // bytes; smaller blocks take too much processor time
  const std::size_t usual = std::max(kMessageSegment, profile.parts * kMessageBlock);
  std::vector<std::size_t> segments{usual};
  for (const std::size_t other : {usual / 4, usual * 4, usual * 16, kMessageSegment}) {
    if (other < nbytes && other != usual && other >= profile.parts * kTiny) segments.push_back(other);
  }
  return segments;
}

std::vector<std::size_t> windows_to_try(std::size_t segments, std::size_t given) {
  if (given > 0) return {given};
  std::vector<std::size_t> windows;
  for (std::size_t window = 1; window <= 16; window *= 2) {
    windows.push_back(window);
    if (window >= segments) break;
  }
  return windows;
}

template <class PriceOf>
Priced best_cut(const Profile& profile, std::size_t nbytes, const Cut& given, const PriceOf& price_of) {
  constexpr double kWorthIt = 0.97;  // a cut tried later must cost at most this fraction of the best one
  Priced best;
  bool found = false;
  for (const std::size_t segment : segments_to_try(profile, nbytes, given.segment)) {
    for (const std::size_t window : windows_to_try(segments_of(nbytes, segment), given.window)) {
      const Cut cut{segment, window};
      const Price it = price_of(cut);
      if (found && it.seconds >= kWorthIt * best.price.seconds) continue;
      best = {cut, it};
      found = true;
    }
  }
  return best;
}

// A call with encoding, as an equivalent call without: its buffer has the encoded size. Reductions
// and copies cost 1 / ratio times as much per encoded byte.
struct Encoded {
  Encoded(std::size_t data, const Network& links, const Cut& fixed, const Encoding& encoding)
      : ratio(encoding.ratio), nbytes(scaled(data, ratio)), network(links),
        given{scaled(fixed.segment, ratio), fixed.window} {
    network.coding = encoding.work * links.copy / ratio;
    network.gamma /= ratio;
    network.copy /= ratio;
  }
  Priced of_data(Priced priced) const {
    priced.cut.segment = scaled(priced.cut.segment, 1 / ratio);
    priced.price.reduced /= ratio;
    return priced;
  }
  static std::size_t scaled(std::size_t n, double by) {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(n) * by));
  }

  const double ratio;
  const std::size_t nbytes;
  Network network;
  const Cut given;
};

Price tally(const Profile& profile, std::size_t nbytes, std::size_t segments) {
  const double block = static_cast<double>(nbytes) / static_cast<double>(profile.parts);
  return {0,
          profile.messages * segments,
          static_cast<double>(profile.sent) * block,
          static_cast<double>(profile.reduced) * block,
          profile.rounds,
          -1};
}

// Returns the seconds that a rank of the fullest host spends on memory, per byte of the buffer. A
// rank with a lane leaves its slice in place; a rank without a lane copies everything. In an
// all-gather a rank puts in only its own part; in a reduce-scatter it takes out only its own part.
double seconds_in_host(const Profile& profile, HostRanks on_host, const Network& network) {
  const double lanes = on_host.lanes, copied = on_host.most > on_host.lanes ? 1 : (lanes - 1) / lanes;
  const double reducing = (on_host.most - 1) / lanes * network.gamma;
  switch (profile.collective) {
    case Collective::broadcast:
      return (1 + copied) * network.copy;
    case Collective::allgather:
      return (1 + 1.0 / profile.size) * network.copy;
    case Collective::reducescatter:
      return (copied + 1.0 / profile.size) * network.copy + reducing;
    default:
      return 2 * copied * network.copy + reducing;
  }
}

}  // namespace

Price price(const Profile& profile, std::size_t nbytes, const Cut& cut, const Network& network) {
  const std::size_t segments = segments_of(nbytes, cut.segment), window = std::max<std::size_t>(1, cut.window);
  Price it = tally(profile, nbytes, segments);
  const Pricer pricer(profile, static_cast<double>(nbytes) / static_cast<double>(segments * profile.parts), network);
  const std::size_t first = std::min(segments, window);  // instances in flight at first; the others follow one by one
  const double paced =
      pricer.together(static_cast<double>(first)) + static_cast<double>(segments - first) * pricer.pace();
  const std::size_t windows = (segments + window - 1) / window;
  if (profile.contended) it.kind = pricer.kind(first > 1);
  it.seconds =
      profile.one_way ? paced + pricer.behind(windows) : std::max(paced, static_cast<double>(windows) * pricer.alone());
  return it;
}

Priced cheapest(const Profile& profile, std::size_t nbytes, const Network& network, const Cut& given,
                const Encoding& encoding) {
  const Encoded sent(nbytes, network, given, encoding);
  return sent.of_data(best_cut(profile, sent.nbytes, sent.given,
                               [&](const Cut& cut) { return price(profile, sent.nbytes, cut, sent.network); }));
}

Priced cheapest_two_level(const Profile& between_hosts, HostRanks on_host, std::size_t nbytes, const Network& network,
                          const Cut& given, const Encoding& encoding) {
  const Encoded sent(nbytes, network, given, encoding);
  Network lane = sent.network;  // a host's lanes share its link
  lane.between.beta *= on_host.lanes;
  const double in_memory = seconds_in_host(between_hosts, on_host, sent.network);
  const std::size_t slice = sent.nbytes / static_cast<std::size_t>(on_host.lanes);
  Priced best = best_cut(between_hosts, slice, sent.given, [&](const Cut& cut) {
    const std::size_t segments = segments_of(slice, cut.segment);
    const double in_host =
        2 * network.within.alpha + static_cast<double>(sent.nbytes) / static_cast<double>(segments) * in_memory;
    Price it = price(between_hosts, slice, cut, lane);
    const double alone = price(between_hosts, slice / segments, {0, 1}, lane).seconds;
    it.seconds = in_host + std::max(it.seconds, alone + static_cast<double>(segments - 1) * in_host);
    it.rounds += 2;
    return it;
  });
  // With one segment in flight, the network is idle whenever a rank of the host is late. The price
  // does not model delays, so at least two segments are in flight.
  constexpr std::size_t kMinInFlight = 2;
  if (given.window == 0 && segments_of(slice, best.cut.segment) > 1)
    best.cut.window = std::max(best.cut.window, kMinInFlight);
  return sent.of_data(best);
}

}  // namespace ringcomm
