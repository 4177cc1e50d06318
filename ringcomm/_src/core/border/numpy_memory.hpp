// A memory handler of NumPy that allocates big arrays in this rank's arena (_pool.pxi). Source:
// NumPy's C-API manual, "Memory management in NumPy".
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "border/numpy.hpp"
#include "shm/node.hpp"

namespace ringcomm_border {

class NumpyMemory {
 public:
  // Returns a capsule with the handler. Arrays that the handler allocated keep the capsule alive.
  static PyObject* make(std::shared_ptr<ringcomm::Node> node) {
    auto* const memory = new NumpyMemory(std::move(node));
    PyObject* const capsule = PyCapsule_New(&memory->handler_, "mem_handler", destroy);
    if (!capsule) {
      delete memory;
    } else {
      PyCapsule_SetContext(capsule, memory);
    }
    return capsule;
  }
  // Sets the handler and returns the previous one.
  static PyObject* set(PyObject* handler) { return _import_array() < 0 ? nullptr : PyDataMem_SetHandler(handler); }

 private:
  static constexpr std::size_t kLeast = 64 << 10;  // bytes; smaller arrays use malloc

  explicit NumpyMemory(std::shared_ptr<ringcomm::Node> node)
      : node_(std::move(node)), handler_{"ringcomm", 1, {this, allocate_bytes, zeros, resize, release_bytes}} {}
  static void destroy(PyObject* capsule) { delete static_cast<NumpyMemory*>(PyCapsule_GetContext(capsule)); }
  static NumpyMemory& self(void* context) { return *static_cast<NumpyMemory*>(context); }

  // Allocates in the arena; returns null if the block is small or the arena is full.
  void* shared(std::size_t nbytes) {
    if (nbytes < kLeast) return nullptr;
    try {
      return node_->at(node_->rank(), node_->allocate(nbytes));
    } catch (const ringcomm::Error&) {  // the arena is full
      return nullptr;
    }
  }
  std::uint64_t offset_of(void* block) const { return node_->offset_of(block, 1); }

  static void* allocate_bytes(void* context, std::size_t nbytes) {
    void* const block = self(context).shared(nbytes);
    return block ? block : std::malloc(nbytes);
  }
  static void* zeros(void* context, std::size_t count, std::size_t item) {
    std::size_t nbytes = 0;
    void* const block = __builtin_mul_overflow(count, item, &nbytes) ? nullptr : self(context).shared(nbytes);
    return block ? std::memset(block, 0, nbytes) : std::calloc(count, item);
  }
  static void* resize(void* context, void* block, std::size_t nbytes) {
    const std::uint64_t offset = block ? self(context).offset_of(block) : ringcomm::kPrivate;
    const bool ordinary = offset == ringcomm::kPrivate;
    if (ordinary && nbytes < kLeast) return std::realloc(block, nbytes);
    void* const fresh = allocate_bytes(context, nbytes);
    if (!fresh) return nullptr;
    const std::size_t had = !ordinary ? self(context).node_->size_of(offset) : block ? ::malloc_usable_size(block) : 0;
    if (had > 0) std::memcpy(fresh, block, std::min(nbytes, had));
    release_bytes(context, block, had);
    return fresh;
  }
  static void release_bytes(void* context, void* block, std::size_t) {
    const std::uint64_t offset = block ? self(context).offset_of(block) : ringcomm::kPrivate;
    offset == ringcomm::kPrivate ? std::free(block) : self(context).node_->free(offset);
  }

  const std::shared_ptr<ringcomm::Node> node_;
  PyDataMem_Handler handler_;
};

}  // namespace ringcomm_border
