// Tests the trace ring: it returns events oldest first, truncates texts, and counts the events it
// dropped.
#include "base/trace.hpp"
#include "base/trace_text.hpp"

#include <string>

#include "check.hpp"

using namespace ringcomm;

static void off_records_nothing() {
  Trace ring(4);
  ring.record("run", "a", "ring", 1, 2, 3, 0, 0);
  CHECK(ring.drain().empty() && ring.dropped() == 0);
}

// For every capacity and number of events: returns the last `capacity` events in order, and drops
// the earlier ones.
static void keeps_the_newest() {
  for (std::size_t capacity : {0u, 1u, 2u, 7u}) {
    Trace ring(capacity);
    ring.enable(true);
    std::uint64_t dropped = 0, next = 0;
    for (std::size_t events : {0u, 1u, 3u, 7u, 8u, 20u, 2u}) {  // one ring, drained repeatedly
      const std::uint64_t first = next;
      for (std::size_t i = 0; i < events; ++i) {
        const auto begin = static_cast<std::int64_t>(next);
        ring.record("run", std::to_string(next), "ring", begin, begin + 1, next, 5, 1);
        ++next;
      }
      const auto out = ring.drain();
      const std::size_t kept = std::min(events, capacity);
      CHECK(out.size() == kept);
      for (std::size_t i = 0; i < kept; ++i) {
        const std::uint64_t id = first + events - kept + i;
        CHECK(out[i].bytes == id && out[i].name == std::to_string(id));
        CHECK(out[i].begin_ns == static_cast<std::int64_t>(id));
        CHECK(out[i].end_ns == out[i].begin_ns + 1 && out[i].rank == 5 && out[i].thread == 1);
        CHECK(out[i].category == std::string("run") && out[i].detail == std::string("ring"));
      }
      dropped += events - kept;
      CHECK(ring.dropped() == dropped);
      CHECK(ring.drain().empty());
    }
  }
}

static void cuts_text() {
  Trace ring(8);
  ring.enable(true);
  const std::string longest(63, 'x');
  ring.record(std::string(100, 'c'), longest, std::string(31, 'd'), 0, 0, 0, 0, 0);
  ring.record("", longest + "y", std::string(30, 'd') + "é", 0, 0, 0, 0, 0);  // é is two bytes
  const auto out = ring.drain();
  CHECK(out[0].category == std::string(15, 'c') && out[0].name == longest && out[0].detail == std::string(31, 'd'));
  CHECK(out[1].category == std::string() && out[1].name == longest && out[1].detail == std::string(30, 'd'));
}

// Checks that every event of every thread is returned or counted as dropped.
static void many_threads() {
  Trace ring(100);
  ring.enable(true);
  std::size_t drained = 0;
  constexpr int kEach = 2000;
  on_ranks(4, [&](int rank) {
    for (int i = 0; i < kEach; ++i) {
      ring.record("run", "name", "detail", i, i, 1, rank, 0);
      if (rank == 0 && i % 100 == 0) drained += ring.drain().size();
    }
  });
  drained += ring.drain().size();
  CHECK(drained + ring.dropped() == 4 * kEach);
}

static TraceEvent event_of(std::string_view category, std::string_view name, std::string_view detail, int lane = -1) {
  Trace ring(1);
  ring.enable(true);
  ring.record(category, name, detail, 1'234'567, 1'235'070, 12, 3, 1, lane);
  return ring.drain().at(0);
}

static bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

static void text_of_events() {
  TraceText writer(3, false);
  CHECK(writer.text({}).empty());
  const TraceEvent first[] = {event_of("run", "a\"\\\n", "ring"), event_of("cycle", "cycles", "2 decided")};
  const std::string one = writer.text(first);
  CHECK(one == R"({"name":"thread_name","ph":"M","pid":3,"tid":1,"args":{"name":"a\"\\\u000a"}},)"
               "\n"
               R"({"name":"thread_sort_index","ph":"M","pid":3,"tid":1,"args":{"sort_index":0}},)"
               "\n"
               R"({"name":"ring","cat":"run","ph":"X","dur":0.503,"ts":1234.567,"pid":3,"tid":1,)"
               R"("args":{"bytes":12,"thread":"worker","algorithm":"ring"}})");
  const TraceEvent second[] = {event_of("ready", "b", "rank 1"), event_of("share-only", "b", "", 0),
                               event_of("queue", "a\"\\\n", "")};
  const std::string two = writer.text(second);
  CHECK(has(two, R"("name":"ready: rank 1","cat":"ready","ph":"i","s":"t","ts")") &&
        has(two, R"("name":"b · lane 0")"));
  CHECK(has(two, R"("sort_index":1001)") && has(two, R"("name":"queued","cat":"queue","ph":"X")") &&
        has(two, R"("tid":1,)"));
  CHECK(writer.row("b") == 2 && writer.row("c") == 4);
  CHECK(has(writer.text({}), R"("tid":4,"args":{"name":"c"}})"));
  TraceText calls(0, false);  // one row for a group's calls; messages have no row, because they overlap
  const TraceEvent third[] = {event_of("run", "call 7 of group a", "ring"), event_of("queue", "call 8 of group a", ""),
                              event_of("message", "send to 1 in group a", "tag 5"), event_of("run", "call of b", "")};
  const std::string three = calls.text(third);
  CHECK(has(three, R"("tid":1,"args":{"name":"group a"}})") && has(three, R"("tid":2,"args":{"name":"call of b"}})"));
  CHECK(!has(three, R"("tid":3)") && has(three, R"("thread":"worker","call":7,"algorithm":"ring"})"));
  CHECK(has(three, R"({"name":"queued","cat":"queue","ph":"i","s":"t")") && has(three, R"("call":8})"));
  CHECK(has(three, R"("cat":"message","ph":"b","id":1,"ts":1234.567,"pid":0,"tid":0,)"
                   R"("args":{"bytes":12,"detail":"tag 5"}})"));
  CHECK(has(three, R"("cat":"message","ph":"e","id":1,"ts":1235.070,"pid":0,"tid":0,"args":{}})"));
  TraceText cycles(0, true);
  CHECK(has(cycles.text({first + 1, 1}), "cycle: 2 decided"));
}

int main() {
  text_of_events();
  off_records_nothing();
  keeps_the_newest();
  cuts_text();
  many_threads();
  CHECK(&trace() == &trace() && !trace().enabled());
}
