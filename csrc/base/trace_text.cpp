#include "base/trace_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/fields.hpp"

namespace ringcomm {
namespace {

// What people call the stages of an operation; "run" is called by its algorithm, the others by their category.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTitles{
    {{"queue", "queued"}, {"agree", "negotiating"}, {"pack", "packing"}, {"unpack", "unpacking"}}};
constexpr std::array<std::string_view, 3> kInstants{"ready", "cycle", "done"};

constexpr std::array<std::string_view, 2> kOverlapping{"message", "message wait"};

bool is_one_of(std::span<const std::string_view> known, std::string_view category) {
  return std::ranges::find(known, category) != known.end();
}

// "call 7 of X": {X, 7}; of other names {name, ""}.
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

template <class Number>
void put(std::string& out, Number number) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

// Nanoseconds as microseconds with three decimals.
void put_microseconds(std::string& out, std::int64_t ns) {
  if (ns < 0) out += '-';
  const auto whole = static_cast<std::uint64_t>(ns < 0 ? -ns : ns);
  put(out, whole / 1000);
  const std::uint64_t rest = whole % 1000;
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, sizeof decimals);
}

// UTF-8 stays as it is.
void put_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
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
  new_rows_ += "\"name\":\"";
  put_text(new_rows_, name);
  if (lane == kFromDeviceLane) {
    new_rows_ += " · from device";
  } else if (lane == kToDeviceLane) {
    new_rows_ += " · to device";
  } else if (lane >= 0) {
    new_rows_ += " · lane ";
    put(new_rows_, lane);
  }
  new_rows_ += "\"}}";
  describe("thread_sort_index", last_);
  new_rows_ += "\"sort_index\":";
  put(new_rows_, index * 1000 + lane + 1);
  new_rows_ += "}}";
  return last_;
}

void TraceText::describe(std::string_view kind, int row) {
  separate(new_rows_);
  new_rows_ += "{\"name\":\"";
  new_rows_ += kind;
  new_rows_ += "\",\"ph\":\"M\",\"pid\":";
  put(new_rows_, rank_);
  new_rows_ += ",\"tid\":";
  put(new_rows_, row);
  new_rows_ += ",\"args\":{";
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
  // Several calls of a row are queued at once.
  const bool instant = is_one_of(kInstants, category) || (!call.empty() && category == "queue");
  separate(out);
  out += "{\"name\":\"";
  if (category == "run" && !detail.empty()) {
    put_text(out, detail);
  } else {
    put_text(out, title_of(category));
    if (instant && !detail.empty()) {
      out += ": ";
      put_text(out, detail);
    }
  }
  out += "\",\"cat\":\"";
  put_text(out, category);
  out += "\",\"ph\":";
  if (instant) {
    out += "\"i\",\"s\":\"t\"";
  } else {
    out += "\"X\",\"dur\":";
    put_microseconds(out, event.end_ns - event.begin_ns);
  }
  out += ",\"ts\":";
  put_microseconds(out, event.begin_ns);
  out += ",\"pid\":";
  put(out, rank_);
  out += ",\"tid\":";
  put(out, row);
  out += ",\"args\":{\"bytes\":";
  put(out, event.bytes);
  out += event.thread ? ",\"thread\":\"worker\"" : ",\"thread\":\"caller\"";
  if (!call.empty()) out.append(",\"call\":").append(call);
  if (!detail.empty()) {
    out += category == "run" ? ",\"algorithm\":\"" : ",\"detail\":\"";
    put_text(out, detail);
    out += '"';
  }
  out += "}}";
}

void TraceText::add_overlapping(const TraceEvent& event, std::string& out) {
  const std::uint64_t id = ++overlapping_;
  for (const bool begins : {true, false}) {
    separate(out);
    out += "{\"name\":\"";
    put_text(out, text_of(event.name));
    out += "\",\"cat\":\"";
    put_text(out, text_of(event.category));
    out += begins ? "\",\"ph\":\"b\",\"id\":" : "\",\"ph\":\"e\",\"id\":";
    put(out, id);
    out += ",\"ts\":";
    put_microseconds(out, begins ? event.begin_ns : event.end_ns);
    out += ",\"pid\":";
    put(out, rank_);
    out += ",\"tid\":0,\"args\":{";
    if (begins) {
      out += "\"bytes\":";
      put(out, event.bytes);
      out += ",\"detail\":\"";
      put_text(out, text_of(event.detail));
      out += '"';
    }
    out += "}}";
  }
}

}  // namespace ringcomm
