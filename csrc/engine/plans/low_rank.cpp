// Implements the reduction of matrices by low-rank factors.
#include "engine/plans/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "codecs/feedback.hpp"
#include "host_collectives/scattered.hpp"
#include "kernels/kernels.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/quantise.hpp"

namespace ringcomm {
namespace {

constexpr std::uint64_t kLowRankCodec = 0x10726E6B;  // codec id in Feedback; no codec uses it

bool all_finite(const float* values, std::size_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// Scales by a power of two, which is exact, so that the largest element is in [1, 2). Returns false
// if all are zero, or the largest is infinite.
bool normalise(float* to, const float* from, std::size_t count) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(from[i]));
  if (!(largest > 0) || !std::isfinite(largest)) return false;
  kernels::scale(DType::float32, to, from, count, {std::ldexp(1.0, -std::ilogb(largest)), 1});
  return true;
}

// Orthonormalises columns of `rows` elements. Each is made orthogonal to all earlier columns,
// twice, because the first pass leaves rounding errors of small differences (Giraud et al., 2005).
// Columns that depend on earlier ones become zero.
void orthogonalise(float* columns, std::size_t rows, std::size_t rank) {
  for (std::size_t k = 0; k < rank; ++k) {
    float* const column = columns + k * rows;
    float before = 0, after = 0;
    if (normalise(column, column, rows)) {
      kernels::project(column, column, rows, 1, &before);
      for (std::size_t j = 0; j < 2 * k; ++j) {
        const float* const earlier = columns + j % k * rows;
        float weight;
        kernels::project(column, earlier, rows, 1, &weight);
        weight = -weight;
        kernels::add_outer(column, earlier, rows, 1, &weight);
      }
      kernels::project(column, column, rows, 1, &after);
    }
    const bool counts = after > 1e-12f * before;
    const double by = counts ? 1 / std::sqrt(static_cast<double>(after)) : 0;
    kernels::scale(DType::float32, column, column, rows, {by, 1});
  }
}

class LowRankTask final : public Task {
 public:
  LowRankTask(LowRankFactors& factors, Channel& channel, Call&& call)
      : factors_(factors), channel_(channel), call_(std::move(call)), whole_{call_.input, call_.output, call_.count},
        left_(factors.left_elements()), right_(factors.right_elements()), mine_(right_.size()) {
    if (call_.op == Op::average) call_.post.divisor *= channel.size();
    if (call_.feedback) call_.feedback->begin(call_.tensor, kLowRankCodec);
    const Scattered array(whole_, call_.fragments, size_of(call_.dtype));
    for (const LowRank::Matrix& matrix : factors.shape().matrices) {
      array.each({matrix.first, matrix.rows * matrix.columns},
                 [&](const Scattered::Piece& piece, auto) { data_.push_back(piece.output); });
      longest_ = std::max(longest_, matrix.columns);
    }
    row_.resize(longest_);
    other_.resize(longest_);
  }

  Progress advance() override {
    if (task_) {
      const Progress progress = task_->advance();
      if (progress != Progress::done) return progress;
      task_.reset();
      next_phase();
      return Progress::moved;
    }
    const std::size_t matrices = factors_.shape().matrices.size();
    if (at_.matrix < matrices) {  // one matrix per turn
      work();
      const std::size_t rank = factors_.rank_of(at_.matrix);
      at_.left += rank * matrix().rows;
      at_.right += rank * matrix().columns;
      ++at_.matrix;
      return Progress::moved;
    }
    if (phase_ == Phase::multiply) return next_phase(), Progress::done;
    const bool left = phase_ == Phase::project;
    if (!left) mine_ = right_;
    task_ = channel_.start(sum(left ? left_ : right_, left ? "/left" : "/right"));
    return Progress::moved;
  }

  void abandon() noexcept override {
    if (task_) task_->abandon();
  }

 private:
  enum class Phase : std::uint8_t { project, take_back, multiply };
  struct Position {
    std::size_t matrix = 0, left = 0, right = 0;
  };

  const LowRank::Matrix& matrix() const { return factors_.shape().matrices[at_.matrix]; }

  void next_phase() {
    phase_ = phase_ == Phase::project ? Phase::take_back : Phase::multiply;
    at_ = {};
  }

  Call sum(std::vector<float>& values, const char* what) const {
    Call call;
    call.name = call_.name + what;
    call.dtype = DType::float32;
    call.algorithm = call_.algorithm;
    call.input = call.output = values.data();
    call.count = values.size();
    call.agreed = true;
    return call;
  }

  void work() {
    const std::size_t rank = factors_.rank_of(at_.matrix);
    float* const left = left_.data() + at_.left;
    float* const right = right_.data() + at_.right;
    if (phase_ == Phase::project) return project(left, rank);
    if (phase_ == Phase::take_back) {
      orthogonalise(left, matrix().rows, rank);
      return take_back(left, right, rank);
    }
    if (!all_finite(left, rank * matrix().rows) || !all_finite(right, rank * matrix().columns)) return refuse();
    multiply(left, right, rank);
    for (std::size_t k = 0; k < rank; ++k) {
      const std::size_t column = k * matrix().columns;
      factors_.adopt(at_.right + column, right + column, matrix().columns);
    }
  }

  // Computes P = M Q.
  void project(float* left, std::size_t rank) {
    std::vector<float> products(rank);
    for (std::size_t i = 0; i < matrix().rows; ++i) {
      load(i);
      kernels::project(row_.data(), factors_.right(at_.right), matrix().columns, rank, products.data());
      for (std::size_t k = 0; k < rank; ++k) left[k * matrix().rows + i] = products[k];
    }
  }

  // Computes Q = M' P.
  void take_back(const float* left, float* right, std::size_t rank) {
    std::fill_n(right, rank * matrix().columns, 0.0f);
    for (std::size_t i = 0; i < matrix().rows; ++i) {
      load(i);
      kernels::add_outer(right, row_.data(), matrix().columns, rank, weights(left, i, rank, 1));
    }
  }

  // Computes the sum, and this rank's residual.
  void multiply(const float* left, const float* right, std::size_t rank) {
    const std::size_t columns = matrix().columns;
    for (std::size_t i = 0; i < matrix().rows; ++i) {
      if (float* const next = next_residual(i)) {
        load(i);
        kernels::combine(other_.data(), mine_.data() + at_.right, columns, rank, weights(left, i, rank, -1));
        kernels::add(next, row_.data(), other_.data(), columns);
      }
      kernels::combine(row_.data(), right, columns, rank, weights(left, i, rank, 1));
      kernels::scale(DType::float32, row_.data(), row_.data(), columns, call_.post);
      store(i);
    }
  }

  // Handles an infinity or a NaN of any rank: all ranks get NaN, as without compression, and keep
  // no residual of it.
  void refuse() {
    for (std::size_t i = 0; i < matrix().rows; ++i) {
      if (float* const next = next_residual(i)) std::copy_n(residual(i), matrix().columns, next);
      std::fill_n(row_.data(), matrix().columns, std::numeric_limits<float>::quiet_NaN());
      store(i);
    }
  }

  const float* weights(const float* left, std::size_t row, std::size_t rank, float sign) {
    weights_.resize(rank);
    for (std::size_t k = 0; k < rank; ++k) weights_[k] = sign * left[k * matrix().rows + row];
    return weights_.data();
  }

  std::size_t first_of(std::size_t row) const { return matrix().first + row * matrix().columns; }
  const float* residual(std::size_t row) const {
    return call_.feedback ? call_.feedback->before(call_.tensor) + first_of(row) : nullptr;
  }
  float* next_residual(std::size_t row) const {
    return call_.feedback ? call_.feedback->after(call_.tensor) + first_of(row) : nullptr;
  }
  std::byte* data(std::size_t row) const { return data_[at_.matrix] + row * matrix().columns * size_of(call_.dtype); }

  // Loads a row of M: the scaled gradient plus its residual.
  void load(std::size_t row) {
    const std::size_t columns = matrix().columns;
    const float* from = reinterpret_cast<const float*>(data(row));
    if (call_.dtype != DType::float32) {
      kernels::cast(DType::float32, row_.data(), call_.dtype, data(row), columns);
      from = row_.data();
    }
    if (!call_.pre.identity()) {
      kernels::scale(DType::float32, row_.data(), from, columns, call_.pre);
      from = row_.data();
    }
    kernels::add(row_.data(), from, residual(row), columns);
  }

  void store(std::size_t row) {
    const std::size_t columns = matrix().columns;
    if (call_.dtype == DType::float32)
      kernels::copy(data(row), row_.data(), columns * sizeof(float));
    else
      kernels::cast(call_.dtype, data(row), DType::float32, row_.data(), columns);
  }

  LowRankFactors& factors_;
  Channel& channel_;
  Call call_;
  const Fragment whole_;
  std::vector<std::byte*> data_;            // memory of each matrix
  std::vector<float> left_, right_, mine_;  // P, Q, and this rank's contribution to Q
  std::vector<float> row_, other_, weights_;
  std::size_t longest_ = 0;
  Phase phase_ = Phase::project;
  Position at_;
  std::unique_ptr<Task> task_;
};

}  // namespace

LowRankFactors::LowRankFactors(LowRank shape, std::uint64_t seed) : shape_(std::move(shape)), seed_(seed) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < shape_.matrices.size(); ++i) {
    left_ += rank_of(i) * shape_.matrices[i].rows;
    right += rank_of(i) * shape_.matrices[i].columns;
  }
  right_.resize(right);
  draw();
}

std::size_t LowRankFactors::rank_of(std::size_t matrix) const {
  const LowRank::Matrix& it = shape_.matrices[matrix];
  return std::min({shape_.rank, it.rows, it.columns});
}

// Draws values uniform in [-1, 1), equal on all ranks: SplitMix64 (Steele, Lea and Flood, OOPSLA
// 2014).
void LowRankFactors::draw() {
  for (float& value : right_) {
    std::uint64_t x = seed_ += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    value = static_cast<float>(static_cast<std::int32_t>((x ^ (x >> 31)) >> 32)) * 0x1p-31f;
  }
}

void LowRankFactors::adopt(std::size_t offset, const float* factor, std::size_t count) {
  if (shape_.warm_start) normalise(right_.data() + offset, factor, count);
}

std::unique_ptr<Task> LowRankFactors::start(Channel& channel, Call&& call) {
  if (!shape_.warm_start) draw();
  return std::make_unique<LowRankTask>(*this, channel, std::move(call));
}

}  // namespace ringcomm
