// Encodes and decodes control records.
#include "engine/agreement/records.hpp"

#include <cstring>
#include <type_traits>

#include "base/types.hpp"
#include "codecs/wire_format.hpp"

namespace ringcomm {

namespace {

[[noreturn]] void malformed() { throw Error(ErrorKind::transport, "a control message is malformed"); }

// ---- encoding of values: one visitor writes them, another reads them, in the order of fields()

class Writer {
 public:
  explicit Writer(Bytes& out) : out_(out) {}
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  void raw(const void* data, std::size_t nbytes) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + nbytes);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      raw(&value, sizeof value);
    } else {
      fields(*this, const_cast<T&>(value));  // this visitor does not modify it
    }
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    raw(text.data(), text.size());
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }

  Bytes& out_;
};

constexpr std::size_t number_of(Verdict::Kind) { return 3; }
constexpr std::size_t number_of(ErrorKind) { return static_cast<std::size_t>(ErrorKind::interrupted) + 1; }

bool is_sound(const Descriptor& d) {
  return d.collective < kCollectiveNames.size() && d.dtype < kDTypes.size() && d.op < kOpNames.size() && d.plan <= 1 &&
         known(Wire::of(d.wire));
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  bool empty() const { return in_.empty(); }
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  const std::byte* raw(std::size_t nbytes) {
    if (nbytes > in_.size()) malformed();
    const std::byte* data = in_.data();
    in_ = in_.subspan(nbytes);
    return data;
  }
  // Reads the number of elements. Each has at least one byte, so a larger number than the remaining
  // bytes is malformed.
  std::size_t size() {
    std::uint32_t value = 0;
    get(value);
    if (value > in_.size()) malformed();
    return value;
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = *raw(1) != std::byte{0};
    } else if constexpr (std::is_trivially_copyable_v<T>) {
      std::memcpy(&value, raw(sizeof value), sizeof value);
    } else {
      fields(*this, value);
    }
    if constexpr (std::is_enum_v<T>) {
      if (static_cast<std::size_t>(value) >= number_of(value)) malformed();
    }
    if constexpr (std::is_same_v<T, Descriptor>) {
      if (!is_sound(value)) malformed();
    }
  }
  void get(std::string& text) {
    const std::size_t length = size();
    text.assign(reinterpret_cast<const char*>(raw(length)), length);
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.resize(size());
    for (T& value : values) get(value);
  }

  std::span<const std::byte> in_;
};

// ---- fields of the records; trivially copyable records are sent as stored

using Flags = std::uint8_t;  // bits: which fields follow

template <class Visitor, class Plain>
void fields(Visitor& visit, Plain& record) {
  record.fields(visit);
}

template <class Visitor>
void fields(Visitor& visit, std::pair<std::string, std::uint64_t>& named) {
  visit(named.first, named.second);
}

template <class Visitor>
void fields(Visitor& visit, Ready& r) {
  enum : Flags { kCached = 1, kExtra = 2, kGrouped = 4, kRange = 8, kPriority = 16 };
  auto has =
      static_cast<Flags>((r.id ? kCached : 0) | (r.extra.empty() ? 0 : kExtra) | (r.group_size > 1 ? kGrouped : 0) |
                         (r.count > 1 ? kRange : 0) | (r.priority != 0 ? kPriority : 0));
  visit(has);
  if (has & kCached) {
    visit(r.id);
  } else {
    visit(r.signature, r.name);
  }
  if (has & kExtra) visit(r.extra);
  if (has & kGrouped) visit(r.group, r.group_size);
  if (has & kRange) visit(r.count);
  if (has & kPriority) visit(r.priority);
}

template <class Visitor>
void fields(Visitor& visit, VerdictItem& item) {
  enum : Flags { kKnown = 1, kSizes = 2, kSigned = 4, kRange = 8 };
  auto has = static_cast<Flags>((item.known ? kKnown : 0) | (item.sizes.empty() ? 0 : kSizes) |
                                (item.signature ? kSigned : 0) | (item.count > 1 ? kRange : 0));
  visit(has, item.id);
  item.known = has & kKnown;
  if (!item.known) visit(item.name);
  if (has & kRange) visit(item.count);
  if (has & kSizes) visit(item.sizes);
  if (!(has & kSigned)) return;
  if (!item.signature) item.signature.emplace();
  visit(*item.signature);
}

template <class Visitor>
void fields(Visitor& visit, Verdict& v) {
  visit(v.kind, v.items, v.forget, v.placeholder_ranks);
  if (v.kind == Verdict::Kind::all_joined) visit(v.last_joined);
  if (v.kind == Verdict::Kind::fail) visit(v.error, v.why, v.ranks, v.early);
}

// Creates a record from its number, which is its index in the variant.
template <std::size_t... number>
Record record_of(std::size_t kind, std::index_sequence<number...>) {
  Record record;
  if (!((number == kind && (record.emplace<number>(), true)) || ...)) malformed();
  return record;
}

}  // namespace

void encode(const Record& record, Bytes& out) {
  Writer write(out);
  write(static_cast<std::uint8_t>(record.index()));
  std::visit([&](const auto& r) { write(r); }, record);
}

std::vector<Record> decode(std::span<const std::byte> in) {
  std::vector<Record> records;
  for (Reader read(in); !read.empty();) {
    std::uint8_t kind = 0;
    read(kind);
    Record& record = records.emplace_back(record_of(kind, std::make_index_sequence<std::variant_size_v<Record>>{}));
    std::visit([&](auto& r) { read(r); }, record);
  }
  return records;
}

}  // namespace ringcomm
