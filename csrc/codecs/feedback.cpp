// Stores residuals in two buffers per tensor, which are swapped after each call that is not undone.
#include "codecs/feedback.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace ringcomm {

namespace {
constexpr std::uint64_t kOther = ~std::uint64_t{0};  // differs from every call's `way`
}

Feedback::Floats Feedback::zeros(std::size_t count) {
  Floats floats{{static_cast<std::byte*>(std::calloc(count * sizeof(float) + kLine, 1)), {}}};
  if (!floats.memory) throw std::bad_alloc();
  return floats;
}

Feedback::Feedback(std::span<const std::size_t> counts) {
  for (const std::size_t count : counts) tensors_.push_back({count, zeros(count), zeros(count)});
}

void Feedback::adopt(Tensor& tensor) {
  if (std::exchange(tensor.pending, false)) std::swap(tensor.now, tensor.next);
}

// A call with the same `way` as the call before writes the same elements. A call with another `way`
// may leave some elements unwritten, so both buffers must be equal before it.
void Feedback::begin(std::uint64_t tensor, std::uint64_t way) {
  Tensor& it = tensors_.at(tensor);
  adopt(it);
  if (it.begun && it.way != way) std::copy_n(it.now.get(), it.count, it.next.get());
  it.way = way;
  it.begun = it.pending = true;
}

void Feedback::undo(std::uint64_t tensor) { tensors_.at(tensor).pending = false; }

void Feedback::undo_all() {
  for (Tensor& it : tensors_) it.pending = false;
}

void Feedback::undo(std::uint64_t tensor, std::size_t first, std::size_t count) {
  Tensor& it = tensors_.at(tensor);
  if (!it.pending || first >= it.count) return;
  std::copy_n(it.now.get() + first, std::min(count, it.count - first), it.next.get() + first);
}

std::span<float> Feedback::residual(std::uint64_t tensor) {
  Tensor& it = tensors_.at(tensor);
  adopt(it);
  it.begun = true;  // the caller may write it
  it.way = kOther;
  return {it.now.get(), it.count};
}

void Feedback::scale(double by) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    for (float& value : residual(i)) value = static_cast<float>(value * by);
  }
}

}  // namespace ringcomm
