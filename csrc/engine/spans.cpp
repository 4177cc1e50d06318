#include "engine/spans.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {

namespace {
std::uint32_t end_of(IdRange ids) { return ids.first + ids.count; }
}  // namespace

void Spans::cut(std::uint32_t id) {
  auto at = spans_.lower_bound(id);
  if (at == spans_.begin() || (at != spans_.end() && at->first == id)) return;
  Span& before = std::prev(at)->second;
  const std::uint32_t end = end_of(before.ids);
  if (end <= id) return;
  Span rest = before;
  rest.ids = {id, end - id};
  before.ids.count = id - before.ids.first;
  spans_.emplace_hint(at, id, std::move(rest));
}

void Spans::tell(int rank, IdRange ids, std::int64_t now_ns, std::vector<IdRange>& complete) {
  if (ids.count == 0) return;
  const auto r = static_cast<std::size_t>(rank);
  const std::uint32_t end = end_of(ids);
  cut(ids.first);
  cut(end);
  auto at = spans_.lower_bound(ids.first);
  for (std::uint32_t next = ids.first; next < end;) {
    if (at == spans_.end() || at->first > next) {  // nobody had told of these
      const std::uint32_t until = at == spans_.end() ? end : std::min(end, at->first);
      at = spans_.emplace_hint(at, next, Span{{next, until - next}, std::vector<char>(ranks_, 0), 0, rank, now_ns});
    }
    Span& span = at->second;
    if (std::exchange(span.here[r], char{1})) {
      throw Error(ErrorKind::internal, "a rank submitted what has id " + std::to_string(next) + " twice");
    }
    next = end_of(span.ids);
    if (++span.count < static_cast<int>(ranks_)) {
      ++at;
      continue;
    }
    if (!complete.empty() && end_of(complete.back()) == span.ids.first) {
      complete.back().count += span.ids.count;
    } else {
      complete.push_back(span.ids);
    }
    at = spans_.erase(at);
  }
}

std::optional<Spans::Span> Spans::take(std::uint32_t id) {
  if (spans_.empty()) return std::nullopt;
  cut(id);
  cut(id + 1);
  auto taken = spans_.extract(id);
  return taken ? std::optional(std::move(taken.mapped())) : std::nullopt;
}

std::vector<Spans::Span> Spans::take_since(std::int64_t last_ns) {
  std::vector<Span> taken;
  for (auto at = spans_.begin(); at != spans_.end();) {
    if (at->second.since_ns <= last_ns) {
      taken.push_back(std::move(at->second));
      at = spans_.erase(at);
    } else {
      ++at;
    }
  }
  return taken;
}

}  // namespace ringcomm
