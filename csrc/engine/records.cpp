#include "engine/records.hpp"

#include <cstring>
#include <type_traits>

#include "base/types.hpp"
#include "kernels/wire_format.hpp"

namespace ringcomm {

namespace {

[[noreturn]] void malformed() { throw Error(ErrorKind::transport, "a control message is malformed"); }

class Writer {
 public:
  explicit Writer(Bytes& out) : out_(out) {}
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), raw, raw + sizeof value);
  }
  void size(std::size_t value) { put(static_cast<std::uint32_t>(value)); }
  void text(const std::string& value) {
    size(value.size());
    const auto* raw = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), raw, raw + value.size());
  }
  template <class T>
  void list(const std::vector<T>& values) {
    size(values.size());
    for (const T& value : values) put(value);
  }

 private:
  Bytes& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  bool empty() const { return in_.empty(); }
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  bool flag() { return get<std::uint8_t>() != 0; }
  // A number of things that take at least `each` bytes: never more than what is left can hold.
  std::size_t size(std::size_t each) {
    const std::size_t value = get<std::uint32_t>();
    if (value > in_.size() / each) malformed();
    return value;
  }
  std::string text() {
    const std::size_t length = size(1);
    return {reinterpret_cast<const char*>(take(length)), length};
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> values(size(sizeof(T)));
    for (T& value : values) value = get<T>();
    return values;
  }

 private:
  const std::byte* take(std::size_t nbytes) {
    if (nbytes > in_.size()) malformed();
    const std::byte* at = in_.data();
    in_ = in_.subspan(nbytes);
    return at;
  }
  std::span<const std::byte> in_;
};

template <class E>
E checked(std::uint8_t value, std::size_t count) {
  if (value >= count) malformed();
  return static_cast<E>(value);
}
constexpr std::size_t kErrorKinds = static_cast<std::size_t>(ErrorKind::interrupted) + 1;

// ---- entries

enum : std::uint8_t { kCached = 1, kExtra = 2, kGrouped = 4, kRange = 8 };

void write(Writer& w, const Ready& r) {
  const bool grouped = r.group_size > 1;
  const bool range = r.count > 1;
  w.put(static_cast<std::uint8_t>((r.id ? kCached : 0) | (r.extra.empty() ? 0 : kExtra) | (grouped ? kGrouped : 0) |
                                  (range ? kRange : 0)));
  if (r.id) {
    w.put(r.id);
  } else {
    w.put(r.signature);
    w.text(r.name);
  }
  if (!r.extra.empty()) w.list(r.extra);
  if (grouped) {
    w.put(r.group);
    w.put(r.group_size);
  }
  if (range) w.put(r.count);
}

Descriptor read_signature(Reader& r) {
  const auto d = r.get<Descriptor>();
  if (d.collective >= kCollectiveNames.size() || d.dtype >= kDTypes.size() || d.op >= kOpNames.size() || d.plan > 1 ||
      !known(Wire::of(d.wire))) {
    malformed();
  }
  return d;
}

Ready read_ready(Reader& r) {
  Ready entry;
  const auto flags = r.get<std::uint8_t>();
  if (flags & kCached) {
    entry.id = r.get<std::uint32_t>();
  } else {
    entry.signature = read_signature(r);
    entry.name = r.text();
  }
  if (flags & kExtra) entry.extra = r.list<std::uint64_t>();
  if (flags & kGrouped) {
    entry.group = r.get<std::uint64_t>();
    entry.group_size = r.get<std::uint32_t>();
  }
  if (flags & kRange) entry.count = r.get<std::uint32_t>();
  return entry;
}

enum : std::uint8_t { kKnown = 1, kSizes = 2, kSigned = 4, kIds = 8 };

void write(Writer& w, const VerdictItem& item) {
  w.put(static_cast<std::uint8_t>((item.known ? kKnown : 0) | (item.sizes.empty() ? 0 : kSizes) |
                                  (item.signature ? kSigned : 0) | (item.count > 1 ? kIds : 0)));
  w.put(item.id);
  if (item.count > 1) w.put(item.count);
  if (!item.known) w.text(item.name);
  if (!item.sizes.empty()) w.list(item.sizes);
  if (item.signature) w.put(*item.signature);
}

VerdictItem read_item(Reader& r) {
  VerdictItem item;
  const auto flags = r.get<std::uint8_t>();
  item.known = flags & kKnown;
  item.id = r.get<std::uint32_t>();
  if (flags & kIds) item.count = r.get<std::uint32_t>();
  if (!item.known) item.name = r.text();
  if (flags & kSizes) item.sizes = r.list<std::uint64_t>();
  if (flags & kSigned) item.signature = read_signature(r);
  return item;
}

void write(Writer& w, const Verdict& v) {
  const bool fail = v.kind == Verdict::Kind::fail;
  w.put(static_cast<std::uint8_t>(v.kind));
  w.size(v.items.size());
  for (const VerdictItem& item : v.items) write(w, item);
  w.list(v.forget);
  w.list(v.absent);
  if (v.kind == Verdict::Kind::all_joined) w.put(v.last_joined);
  if (!fail) return;
  w.put(static_cast<std::uint8_t>(v.error));
  w.text(v.why);
  w.list(v.ranks);
  w.put(static_cast<std::uint8_t>(v.early));
}

Verdict read_verdict(Reader& r) {
  Verdict v;
  v.kind = checked<Verdict::Kind>(r.get<std::uint8_t>(), 3);
  v.items.resize(r.size(5));
  for (VerdictItem& item : v.items) item = read_item(r);
  v.forget = r.list<std::uint32_t>();
  v.absent = r.list<int>();
  if (v.kind == Verdict::Kind::all_joined) v.last_joined = r.get<int>();
  if (v.kind != Verdict::Kind::fail) return v;
  v.error = checked<ErrorKind>(r.get<std::uint8_t>(), kErrorKinds);
  v.why = r.text();
  v.ranks = r.list<int>();
  v.early = r.flag();
  return v;
}

// ---- records

void write(Writer& w, const ReadyRecord& r) {
  w.put(r.set);
  w.put(r.heard);
  w.size(r.entries.size());
  for (const Ready& entry : r.entries) write(w, entry);
}
void write(Writer& w, const VerdictRecord& r) {
  w.put(r.set);
  w.put(r.first);
  w.size(r.verdicts.size());
  for (const Verdict& verdict : r.verdicts) write(w, verdict);
}
void write(Writer& w, const WithdrawRecord& r) {
  w.put(r.set);
  w.text(r.name);
  w.text(r.why);
}
void write(Writer& w, const GoingRecord& r) { w.put(r.set); }
void write(Writer& w, const ConfirmedRecord& r) { w.put(r.set); }
void write(Writer& w, const JoinRecord& r) { w.put(r.set); }
void write(Writer& w, const LeaveRecord& r) {
  w.put(static_cast<std::uint8_t>(r.entirely));
  w.size(r.sets.size());
  for (const SetEnd& end : r.sets) {
    w.put(end.set);
    w.put(end.executed);
    w.size(end.steps.size());
    for (const auto& [name, steps] : end.steps) {
      w.text(name);
      w.put(steps);
    }
    w.list(end.because);
  }
}
void write(Writer& w, const AbortRecord& r) {
  w.put(static_cast<std::uint8_t>(r.kind));
  w.text(r.what);
  w.list(r.ranks);
}

void read(Reader& r, ReadyRecord& record) {
  record.set = r.get<std::uint32_t>();
  record.heard = r.get<std::uint64_t>();
  record.entries.resize(r.size(5));
  for (Ready& entry : record.entries) entry = read_ready(r);
}
void read(Reader& r, VerdictRecord& record) {
  record.set = r.get<std::uint32_t>();
  record.first = r.get<std::uint64_t>();
  record.verdicts.resize(r.size(13));
  for (Verdict& verdict : record.verdicts) verdict = read_verdict(r);
}
void read(Reader& r, WithdrawRecord& record) {
  record.set = r.get<std::uint32_t>();
  record.name = r.text();
  record.why = r.text();
}
void read(Reader& r, GoingRecord& record) { record.set = r.get<std::uint32_t>(); }
void read(Reader& r, ConfirmedRecord& record) { record.set = r.get<std::uint32_t>(); }
void read(Reader& r, JoinRecord& record) { record.set = r.get<std::uint32_t>(); }
void read(Reader& r, LeaveRecord& record) {
  record.entirely = r.flag();
  record.sets.resize(r.size(20));
  for (SetEnd& end : record.sets) {
    end.set = r.get<std::uint32_t>();
    end.executed = r.get<std::uint64_t>();
    end.steps.resize(r.size(12));
    for (auto& [name, steps] : end.steps) {
      name = r.text();
      steps = r.get<std::uint64_t>();
    }
    end.because = r.list<int>();
  }
}
void read(Reader& r, AbortRecord& record) {
  record.kind = checked<ErrorKind>(r.get<std::uint8_t>(), kErrorKinds);
  record.what = r.text();
  record.ranks = r.list<int>();
}

// A record's number is its place in the variant, for who writes and for who reads.
template <std::size_t number = 0>
Record read_record(std::size_t kind, Reader& r) {
  if constexpr (number == std::variant_size_v<Record>) {
    malformed();
  } else {
    if (kind != number) return read_record<number + 1>(kind, r);
    std::variant_alternative_t<number, Record> record;
    read(r, record);
    return record;
  }
}

}  // namespace

void encode(const Record& record, Bytes& out) {
  Writer writer(out);
  writer.put(static_cast<std::uint8_t>(record.index()));
  std::visit([&](const auto& r) { write(writer, r); }, record);
}

std::vector<Record> decode(std::span<const std::byte> in) {
  std::vector<Record> records;
  for (Reader reader(in); !reader.empty();) records.push_back(read_record(reader.get<std::uint8_t>(), reader));
  return records;
}

}  // namespace ringcomm
