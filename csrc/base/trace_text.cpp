// Writes events as JSON objects in the Chrome trace event format.
#include "base/trace_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>

#include "base/fields.hpp"

namespace ringcomm {
namespace {

// Titles of phases in the timeline. The title of a "run" is the name of its algorithm. The title of
// any other phase that is not in this table is its category.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTitles{
    {{"queue", "queued"}, {"agree", "negotiating"}, {"pack", "packing"}, {"unpack", "unpacking"}}};
constexpr std::array<std::string_view, 5> kInstants{"begin", "filled", "ready", "cycle", "done"};

constexpr std::array<std::string_view, 2> kOverlapping{"message", "message wait"};

bool is_one_of(std::span<const std::string_view> known, std::string_view category) {
  return std::ranges::find(known, category) != known.end();
}

// Splits "call 7 of X" into {X, 7}; other names yield {name, ""}.
std::pair<std::string_view, std::string_view> row_and_call(std::string_view name) {
  constexpr std::string_view kCall = "call ", kOf = " of ";
  if (!name.starts_with(kCall)) return {name, {}};
  const std::size_t end = name.find_first_not_of("0123456789", kCall.size());
  if (end == kCall.size() || end == name.npos || !name.substr(end).starts_with(kOf)) return {name, {}};
  return {name.substr(end + kOf.size()), name.substr(kCall.size(), end - kCall.size())};
}

std::string_view title_of(std::string_view category) {
  for (const auto& [known, title] : kTitles) {
    if (known == category) return title;
  }
  return category;
}

// Text to be written with JSON's escapes. UTF-8 is written unchanged.
struct Escaped {
  std::string_view text;
};

// A time to be written as microseconds with three decimals.
struct Nanoseconds {
  std::int64_t ns;
};

void put(std::string& out, std::string_view text) { out += text; }

template <std::integral Number>
void put(std::string& out, Number number) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

void put(std::string& out, Nanoseconds time) {
  if (time.ns < 0) out += '-';
  const auto whole = static_cast<std::uint64_t>(time.ns < 0 ? -time.ns : time.ns);
  put(out, whole / 1000);
  const std::uint64_t rest = whole % 1000;
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, sizeof decimals);
}

void put(std::string& out, Escaped escaped) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : escaped.text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20) {
      out += c;
    } else {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
}

template <class... Parts>
  requires(sizeof...(Parts) > 1)
void put(std::string& out, const Parts&... parts) {
  (put(out, parts), ...);
}

void separate(std::string& out) {
  if (!out.empty()) out += ",\n";
}

}  // namespace

int TraceText::row(std::string_view name, int lane) {
  std::map<int, int>& lanes = rows_[std::string(name)];
  const auto [entry, fresh] = lanes.try_emplace(lane, last_ + 1);
  if (!fresh) return entry->second;
  ++last_;
  const int index = indices_.try_emplace(std::string(name), static_cast<int>(indices_.size())).first->second;
  describe("thread_name", last_);
  put(new_rows_, "\"name\":\"", Escaped{name});
  if (lane == kFromDeviceLane) {
    put(new_rows_, " · from device");
  } else if (lane == kToDeviceLane) {
    put(new_rows_, " · to device");
  } else if (lane >= 0) {
    put(new_rows_, " · lane ", lane);
  }
  put(new_rows_, "\"}}");
  describe("thread_sort_index", last_);
  put(new_rows_, "\"sort_index\":", index * 1000 + lane + 1, "}}");
  return last_;
}

void TraceText::describe(std::string_view kind, int row) {
  separate(new_rows_);
  put(new_rows_, "{\"name\":\"", kind, "\",\"ph\":\"M\",\"pid\":", rank_, ",\"tid\":", row, ",\"args\":{");
}

std::string TraceText::text(std::span<const TraceEvent> events) {
  std::string out;
  out.reserve(events.size() * 192);
  for (const TraceEvent& event : events) {
    if (is_one_of(kOverlapping, text_of(event.category)))
      add_overlapping(event, out);
    else if (mark_cycles_ || text_of(event.category) != "cycle")
      add(event, out);
  }
  std::string all = std::exchange(new_rows_, {});
  if (!out.empty()) separate(all);
  return all += out;
}

void TraceText::add(const TraceEvent& event, std::string& out) {
  const std::string_view category = text_of(event.category), name = text_of(event.name), detail = text_of(event.detail);
  const auto [of, call] = row_and_call(name);
  const int row = this->row(of.empty() ? category : of, event.lane);
  // Several calls of a row may be queued at the same time, but events of a row must not overlap.
  const bool instant = is_one_of(kInstants, category) || (!call.empty() && category == "queue");
  separate(out);
  const bool by_detail = category == "run" && !detail.empty();
  put(out, "{\"name\":\"", Escaped{by_detail ? detail : title_of(category)});
  if (instant && !by_detail && !detail.empty()) put(out, ": ", Escaped{detail});
  put(out, "\",\"cat\":\"", Escaped{category}, "\",\"ph\":");
  if (instant) {
    put(out, "\"i\",\"s\":\"t\"");
  } else {
    put(out, "\"X\",\"dur\":", Nanoseconds{event.end_ns - event.begin_ns});
  }
  put(out, ",\"ts\":", Nanoseconds{event.begin_ns}, ",\"pid\":", rank_, ",\"tid\":", row);
  put(out, ",\"args\":{\"bytes\":", event.bytes, ",\"thread\":\"", event.thread ? "worker\"" : "caller\"");
  if (!call.empty()) put(out, ",\"call\":", call);
  if (!detail.empty()) put(out, category == "run" ? ",\"algorithm\":\"" : ",\"detail\":\"", Escaped{detail}, "\"");
  put(out, "}}");
}

void TraceText::add_overlapping(const TraceEvent& event, std::string& out) {
  const std::uint64_t id = ++overlapping_;
  for (const bool begins : {true, false}) {
    separate(out);
    put(out, "{\"name\":\"", Escaped{text_of(event.name)}, "\",\"cat\":\"", Escaped{text_of(event.category)});
    put(out, begins ? "\",\"ph\":\"b\",\"id\":" : "\",\"ph\":\"e\",\"id\":", id);
    put(out, ",\"ts\":", Nanoseconds{begins ? event.begin_ns : event.end_ns});
    put(out, ",\"pid\":", rank_, ",\"tid\":0,\"args\":{");
    if (begins) put(out, "\"bytes\":", event.bytes, ",\"detail\":\"", Escaped{text_of(event.detail)}, "\"");
    put(out, "}}");
  }
}

}  // namespace ringcomm
