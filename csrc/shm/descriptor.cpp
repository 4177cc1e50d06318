// Computes the digest of a descriptor, and the message about differences between ranks.
#include "shm/descriptor.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/fields.hpp"
#include "base/rank_text.hpp"
#include "base/text.hpp"
#include "codecs/wire_format.hpp"

namespace ringcomm {

static_assert(sizeof(Descriptor) % 8 == 0 && std::has_unique_object_representations_v<Descriptor>, "hashed by words");

namespace {

constexpr std::size_t kMostGroups = 8;  // values that a message shows; further ones are only counted

template <class Table, class Show = std::identity>
std::string entry(const Table& table, std::size_t index, Show show = {}) {
  return index < table.size() ? std::string(std::invoke(show, table[index])) : concat("unknown ", index);
}

std::string collective_name(const Descriptor& d) { return entry(kCollectiveNames, d.collective); }

std::string call_name(const Descriptor& d) {
  const std::string_view name = text_of(d.name);
  return name.empty() ? collective_name(d) : concat(collective_name(d), " '", name, "'");
}

// Returns the descriptor of the first rank that gave a name; if no rank did, the first descriptor.
const Descriptor& named_first(std::span<const Descriptor> all) {
  const auto named = std::ranges::find_if(all, [](const Descriptor& d) { return !text_of(d.name).empty(); });
  return named == all.end() ? all[0] : *named;
}

std::string shape_name(const Descriptor& d) {
  const std::string_view shape = text_of(d.shape_text);
  if (shape == "(0,)" && computes(static_cast<Collective>(d.collective)))
    return "(0,) (also used for a gradient that is None)";
  return shape.empty() ? std::to_string(d.count) + (d.count == 1 ? " element" : " elements") : std::string(shape);
}

// A property on which all ranks must agree.
struct Field {
  std::string_view what;  // continues "ranks disagree on "
  std::string fix;        // a sentence for the user
  std::function<bool(const Descriptor&, const Descriptor&)> same;
  std::function<std::string(const Descriptor&)> show;
};

template <class... Value>
auto same(Value Descriptor::*... members) {
  return [=](const Descriptor& a, const Descriptor& b) { return ((a.*members == b.*members) && ...); };
}

// A value, and the ranks that gave it.
struct Group {
  const Descriptor* value;
  std::vector<int> ranks;
  std::string text;
};

std::vector<Group> groups_of(const Field& field, std::span<const Descriptor> all, std::span<const int> ranks) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto home = std::ranges::find_if(groups, [&](const Group& group) { return field.same(*group.value, all[i]); });
    if (home == groups.end()) {
      std::string text = field.show(all[i]);
      // values may differ although their texts, which are truncated or omit a hash, are equal
      if (std::ranges::any_of(groups, [&](const Group& group) { return group.text == text; }))
        text = "another " + text.substr(text.starts_with("one ") ? 4 : 0);
      home = groups.insert(groups.end(), Group{&all[i], {}, std::move(text)});
    }
    home->ranks.push_back(ranks[i]);
  }
  return groups;
}

std::string sentence(const Field& field, std::string_view call, const std::vector<Group>& groups) {
  std::string text = call.empty() ? "" : std::string(call) + ": ";
  text += concat("ranks disagree on ", field.what, ": ");
  for (std::size_t g = 0; g < groups.size() && g < kMostGroups; ++g) {
    text += (g > 0 ? "; " : "") + groups[g].text + " on " + rank_text(groups[g].ranks);
  }
  if (groups.size() > kMostGroups) text += concat("; and ", groups.size() - kMostGroups, " further values");
  return text + ". " + field.fix;
}

Field collective_field() {
  return {"the collective", "Call the same collectives in the same order on every rank.",
          same(&Descriptor::collective, &Descriptor::plan),
          [](const auto& d) { return call_name(d) + (d.plan ? " in a training step" : ""); }};
}

Field name_field() {
  return {"the name", "Call the same operations in the same order on every rank.",
          [](const auto& a, const auto& b) { return text_of(a.name) == text_of(b.name); },
          [](const auto& d) { return concat("'", text_of(d.name), "'"); }};
}

Field algorithm_field() {
  return {"algorithm", "Ask for the same algorithm on every rank.",
          [](const auto& a, const auto& b) { return text_of(a.algorithm) == text_of(b.algorithm); },
          [](const auto& d) {
            const std::string_view name = text_of(d.algorithm);
            return name.empty() ? "none given" : concat("'", name, "'");
          }};
}

Field shape_field(Collective collective) {
  const bool any_count = has_rows_per_rank(collective);
  return {
      "shape",
      any_count
          ? "Only the first dimension may differ between ranks, and no dimension if a compiled graph has fixed shapes. "
            "Counts must be the same list on every rank."
          : "Give arrays of the same shape on every rank.",
      [any_count](const auto& a, const auto& b) { return a.shape == b.shape && (any_count || a.count == b.count); },
      shape_name};
}

std::string wire_name(const Descriptor& d) { return text_of(Wire::of(d.wire)); }

// Returns the fields to compare after collective and name, in this order.
std::vector<Field> fields_of(Collective collective) {
  if (collective == Collective::barrier) return {algorithm_field()};
  std::vector<Field> fields;
  fields.push_back({"dtype", "Give the same dtype on every rank.", same(&Descriptor::dtype),
                    [](const auto& d) { return entry(kDTypes, d.dtype, &DTypeInfo::name); }});
  if (computes(collective)) {
    fields.push_back({"op", "Give the same op on every rank.", same(&Descriptor::op),
                      [](const auto& d) { return entry(kOpNames, d.op); }});
  }
  if (has_root(collective)) {
    fields.push_back({"root", "Give the same root on every rank.", same(&Descriptor::root),
                      [](const auto& d) { return std::to_string(d.root); }});
  }
  fields.push_back({"the kind of memory", "Give CPU arrays on every rank, or GPU arrays on every rank.",
                    same(&Descriptor::on_device),
                    [](const auto& d) { return std::string(d.on_device ? "GPU" : "CPU"); }});
  fields.push_back(
      {"the wire format", "Ask for the same compression on every rank.", same(&Descriptor::wire), wire_name});
  fields.push_back(algorithm_field());
  if (computes(collective)) {
    fields.push_back({"prescale_factor or postscale_factor", "Give the same factors on every rank.",
                      same(&Descriptor::pre, &Descriptor::post), [](const auto&) { return std::string("one value"); }});
  }
  fields.push_back(shape_field(collective));
  return fields;
}

std::string disagreement_on(const Field& field, std::string_view call, std::span<const Descriptor> all,
                            std::span<const int> ranks) {
  const bool agreed =
      std::ranges::all_of(all, [&](const Descriptor& descriptor) { return field.same(all[0], descriptor); });
  return agreed ? std::string() : sentence(field, call, groups_of(field, all, ranks));
}

}  // namespace

std::uint64_t digest_of(const Descriptor& call) {
  Descriptor d = call;
  std::memset(d.shape_text, 0, sizeof d.shape_text);
  if (static_cast<Collective>(d.collective) == Collective::allgather) d.count = 0;
  d.balance = 0;
  std::uint64_t words[sizeof(Descriptor) / 8];
  std::memcpy(words, &d, sizeof words);
  constexpr std::size_t kLanes = 4;  // independent lanes, so that multiplications overlap
  std::uint64_t lanes[kLanes] = {0x9E3779B97F4A7C15ull, 1, 2, 3};
  const auto mix = [](std::uint64_t& hash, std::uint64_t word) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  };
  for (std::size_t i = 0; i < std::size(words); ++i) mix(lanes[i % kLanes], words[i]);
  for (std::size_t lane = 1; lane < kLanes; ++lane) mix(lanes[0], lanes[lane]);
  return lanes[0];
}

std::string disagreement(std::span<const Descriptor> all, std::span<const int> ranks) {
  const auto is_equal = [&](const Descriptor& descriptor) { return digest_of(descriptor) == digest_of(all[0]); };
  if (std::all_of(all.begin(), all.end(), is_equal)) return {};  // the common case
  if (std::string why = disagreement_on(collective_field(), "", all, ranks); !why.empty()) return why;
  const auto collective = static_cast<Collective>(all[0].collective);
  std::vector<Descriptor> named;  // names of other ranks are not compared
  std::vector<int> namers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (text_of(all[i].name).empty()) continue;
    named.push_back(all[i]);
    namers.push_back(ranks[i]);
  }
  const std::string call = call_name(named_first(all));
  if (!named.empty()) {
    std::string why = disagreement_on(name_field(), collective_name(all[0]), named, namers);
    if (!why.empty()) return why;
  }
  for (const Field& field : fields_of(collective)) {
    if (std::string why = disagreement_on(field, call, all, ranks); !why.empty()) return why;
  }
  return {};
}

std::string counts_disagreement(std::span<const Descriptor> all, std::span<const std::uint64_t> counts,
                                std::uint64_t row, std::vector<int>& involved) {
  const std::size_t ranks = all.size();
  const bool in_rows = row > 1 && std::ranges::all_of(counts, [&](std::uint64_t count) { return count % row == 0; });
  const auto amount = [&](std::uint64_t count) { return in_rows ? count / row : count; };
  const std::string_view unit = in_rows ? "row" : "element";
  std::string pairs;
  std::size_t number = 0;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t sent = amount(counts[2 * ranks * from + to]);
      const std::uint64_t expected = amount(counts[2 * ranks * to + ranks + from]);
      if (sent == expected) continue;
      involved.insert(involved.end(), {static_cast<int>(from), static_cast<int>(to)});
      if (++number > kMostGroups) continue;
      pairs += concat(number > 1 ? "; " : "", "rank ", from, " sends ", sent, " ", unit, sent == 1 ? "" : "s", " to ",
                      from == to ? std::string("itself, but") : concat("rank ", to, ", which"), " expects ", expected);
    }
  }
  if (number == 0) return {};
  if (number > kMostGroups) pairs += concat("; and ", number - kMostGroups, " further pairs");
  return concat(call_name(named_first(all)), ": ranks disagree on counts: ", pairs,
                ". The receive counts of a rank must be the numbers that the other ranks send to it.");
}

}  // namespace ringcomm
