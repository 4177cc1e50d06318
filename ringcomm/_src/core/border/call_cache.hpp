// The cache of prepared calls (_call_cache.pxi): recognition of NumPy arrays, and the entries. A
// channel's run_cached() looks calls up and runs them.
#pragma once

#include "border/numpy.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/caller_run.hpp"

namespace ringcomm_border {
using namespace ringcomm;
constexpr int kMostDimensions = 8;

// An owned reference to a Python object, or null.
class Held {
 public:
  Held() = default;
  Held(const Held&) = delete;
  ~Held() { Py_XDECREF(it_); }
  void hold(PyObject* other) {
    Py_XINCREF(other);
    Py_XDECREF(std::exchange(it_, other));
  }
  PyObject* get() const { return it_; }

 private:
  PyObject* it_ = nullptr;
};

// The type, dtype and shape that plain arrays of one kind share; or no array (for a barrier).
class ArrayKind {
 public:
  bool fits(PyObject* object, bool written) const {
    if (Py_TYPE(object) != type_) return false;
    if (object == Py_None) return true;
    const PyArrayObject* const array = array_of(object);
    const int needed = written ? kPlain | NPY_ARRAY_WRITEABLE : kPlain;
    return (PyArray_FLAGS(array) & needed) == needed && dtype_of(object) == descr_.get() &&
           PyArray_NDIM(array) == dimensions_ && std::equal(shape_, shape_ + dimensions_, PyArray_DIMS(array));
  }
  void forget() { type_ = nullptr; }
  // Stores the type and dtype of `array`, which may be None, and the shape `shape`.
  void learn(PyObject* array, const std::vector<Py_ssize_t>& shape) {
    descr_.hold(array == Py_None ? nullptr : dtype_of(array));  // keeps the dtype's address from being reused
    dimensions_ = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), shape_);
    type_ = Py_TYPE(array);
  }
  PyObject* dtype() const { return descr_.get(); }

 private:
  PyTypeObject* type_ = nullptr;
  Held descr_;
  int dimensions_ = 0;
  Py_ssize_t shape_[kMostDimensions];
};

// Numbers of bytes that a call reads and writes (aliasing.py). In place, the input begins `offset`
// bytes after the output.
struct Span {
  std::int64_t offset = 0, read = 0, written = 0;
  bool allows(const char* input, const char* output) const {
    const auto distance =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(input) - reinterpret_cast<std::uintptr_t>(output));
    return distance == offset || distance >= written || distance <= -read || read == 0 || written == 0;
  }
};

// One prepared call. Some collectives exchange numbers first, one number or one for each rank, and
// the call depends on the received numbers.
struct CachedCall {
  ArrayKind given, result;
  Held shape;  // shape of a new result
  Span span;
  Call call, exchange;
  bool returns = true;  // this rank has a result; not used for a reduce, which may have any root
  bool exchanges = false;
  bool even = false;                    // Call::even before the call runs
  std::vector<std::int64_t> cache_key;  // numbers from the caller that the call depends on
  std::vector<std::int64_t> sent, expected, received;
  std::uint64_t numbers = 0;  // result of expectation()
  Speculation speculation;    // the call that may run within the exchange

  // Returns a hash of the expected numbers; 0 if they do not determine what other ranks expect.
  std::uint64_t expectation() const {
    const auto other = [&](std::int64_t number) { return number != expected[0]; };
    if (exchange.collective == Collective::alltoall &&
        (std::any_of(sent.begin(), sent.end(), other) || std::any_of(expected.begin(), expected.end(), other)))
      return 0;
    std::uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (const std::int64_t number : expected) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0xD6E8FEB86659FD93ull;
      hash ^= hash >> 32;
    }
    return hash | 1;
  }
  // Returns the exchange. If `numbers` is not 0, the call `follows`, which needs the exchanged
  // numbers, is the speculation of the exchange. The exchange's own blocks are even on all ranks.
  Call& exchange_call(Call& follows) {
    if (exchange.descriptor_key == 0) exchange.descriptor_key = new_key();
    speculation = {numbers, &follows, false};
    exchange.speculation = numbers != 0 ? &speculation : nullptr;
    follows.even = follows.even || numbers != 0;
    exchange.input = sent.data();
    exchange.output = received.data();
    return exchange;
  }
  // Returns true if the op is valid for the collective and the dtype: entries do not depend on the
  // op. Adasum is never cached.
  bool takes(std::int64_t op, double pre, double post) const {
    if (!computes(call.collective)) return true;
    if (op < 0 || op >= std::ssize(kOpNames)) return false;
    const auto its = static_cast<Op>(op);
    if (is_scan(call.collective) && its == Op::average) return false;
    return kernels::reduces(call.dtype, its) && (is_scaled(its) || (pre == 1.0 && post == 1.0));
  }
  bool has_result(int root, int rank) const { return call.collective == Collective::reduce ? root == rank : returns; }
  // Returns the call with these arguments. Sets all fields that its last run may have changed.
  Call& cached_call(const char* input, char* output, int op, int root, double pre, double post) {
    const auto bits = [](double factor) { return std::bit_cast<std::uint64_t>(factor); };  // as descriptors compare
    const bool same = call.op == static_cast<Op>(op) && call.root == root && bits(call.pre.factor) == bits(pre) &&
                      bits(call.post.factor) == bits(post) && call.descriptor_key != 0;
    if (!same) call.descriptor_key = new_key();
    call.input = input;
    call.output = output;
    call.op = static_cast<Op>(op);
    call.root = root;
    call.pre = {pre, 1};
    call.post = {post, 1};
    call.even = even;
    return call;
  }

 private:
  static std::uint64_t new_key() {  // unique in this process
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
};

// Starts a cached call, with the GIL. Returns whether it is complete; otherwise the caller releases
// the GIL and calls finish_cached(). Nothing is copied: copying a Call takes a fifth of a barrier.
inline bool start_cached(std::optional<CallerRun>& run, Channel& channel, CachedCall& cached, const char* input,
                         char* output, int op, int root, double pre, double post) {
  return run.emplace(channel, cached.cached_call(input, output, op, root, pre, post)).poll();
}
inline void finish_cached(std::optional<CallerRun>& run, bool (*interrupted)()) { run->finish(interrupted); }

// Runs the exchange before a call. Returns true if the call ran within the exchange.
inline bool run_exchange(Channel& channel, CachedCall& cached, const char* input, char* output, int op, int root,
                         double pre, double post, bool (*interrupted)()) {
  Call& follows = cached.cached_call(input, output, op, root, pre, post);
  CallerRun run(channel, cached.exchange_call(follows));
  if (!run.poll()) run.finish(interrupted);
  return cached.speculation.right;
}

class CallCache {
 public:
  CachedCall* find(int collective, PyObject* given, const std::vector<std::int64_t>& cache_key) {
    for (CachedCall& cached : of(collective).entries) {
      if (cached.given.fits(given, false) && cached.cache_key == cache_key) return &cached;
    }
    return nullptr;
  }
  CachedCall* renew(int collective) {  // returns the oldest entry, to be overwritten
    Kept& kept = of(collective);
    CachedCall* const cached = &kept.entries[kept.next++ % kept.entries.size()];
    cached->given.forget();
    return cached;
  }

 private:
  struct Kept {
    std::array<CachedCall, 4> entries;
    std::size_t next = 0;
  };
  Kept& of(int collective) { return kept_[static_cast<std::size_t>(collective)]; }
  std::array<Kept, kCollectiveNames.size()> kept_;
};

inline bool plain_array(PyObject* object, PyTypeObject* type) {
  return Py_TYPE(object) == type && (PyArray_FLAGS(array_of(object)) & kPlain) == kPlain &&
         PyArray_NDIM(array_of(object)) <= kMostDimensions;
}
}  // namespace ringcomm_border
