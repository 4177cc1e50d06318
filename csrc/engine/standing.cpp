#include "engine/standing.hpp"

#include <utility>

#include "base/aligned_bytes.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

Standing::Standing(DType dtype, std::size_t count, void* array, Rule rule)
    : dtype_(dtype), count_(count), nbytes_(count * size_of(dtype)), array_(array), rule_(rule) {
  given_.data = aligned_bytes(nbytes_);
  kept_.data = aligned_bytes(nbytes_);
}

void Standing::add(Sum& sum, const void* data) const {
  if (std::exchange(sum.any, true) && rule_ == Rule::add) {
    kernels::reduce(dtype_, Op::sum, sum.data.get(), sum.data.get(), data, count_);
  } else {
    kernels::copy(sum.data.get(), data, nbytes_);
  }
}

// Of nothing, what adds nothing.
void Standing::copy_out(const Sum& sum, void* out) const {
  if (sum.any) {
    kernels::copy(out, sum.data.get(), nbytes_);
  } else {
    kernels::fill_identity(dtype_, Op::sum, out, count_);
  }
}

void Standing::put_in(const void* data) {
  add(given_, data);
  ++gifts_;
}

void Standing::offer(const void* data) {
  const std::lock_guard lock(mutex_);
  put_in(data);
}

void Standing::give(const void* data, const std::function<void()>& come) {
  const std::lock_guard lock(mutex_);
  if (data) put_in(data);
  if (agreed_ == taken_) come();
}

bool Standing::has_results() const {
  const std::lock_guard lock(mutex_);
  return ended_ > taken_;
}

Standing::Taken Standing::take(void* out) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(kept_.any, false)) kernels::copy(out, kept_.data.get(), nbytes_);
  return {ended_ - std::exchange(taken_, ended_), gifts_in_kept_ == gifts_};
}

void Standing::save(void* given, void* kept) const {
  const std::lock_guard lock(mutex_);
  copy_out(given_, given);
  copy_out(kept_, kept);
}

void Standing::restore(const void* given, const void* kept) {
  const std::lock_guard lock(mutex_);
  given_.any = kept_.any = false;
  put_in(given);
  add(kept_, kept);
}

void Standing::agree() {
  const std::lock_guard lock(mutex_);
  ++agreed_;
}

void Standing::begin() {
  const std::lock_guard lock(mutex_);
  copy_out(given_, array_);
  gifts_in_round_ = gifts_;
  if (rule_ == Rule::add) given_.any = false;
}

void Standing::end() {
  const std::lock_guard lock(mutex_);
  add(kept_, array_);
  gifts_in_kept_ = gifts_in_round_;
  ++ended_;
}

}  // namespace ringcomm
