// What an optimizer does to weights with a gradient, in one pass over both and its state. Every instruction set gives
// equal bits; they are those of torch.optim's single-tensor forms but for the last one or two.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

enum class Rule : std::uint8_t { get, put, add, sgd, adam, adagrad, rmsprop, elastic, average };

// The options of torch.optim's class of that name. A rule reads those that it has.
struct RuleOptions {
  double lr = 0;
  double momentum = 0, dampening = 0;          // sgd; rmsprop: momentum
  double weight_decay = 0;                     // added to gradients, times the weight; of adam, `decoupled`: taken off
  double beta1 = 0.9, beta2 = 0.999, eps = 0;  // adam; eps of adagrad and rmsprop too; beta2: rmsprop's alpha
  double lr_decay = 0;                         // adagrad
  double scale = 1;                            // add: of what is added; others: of the gradient
  double alpha = 0;                            // elastic
  double compensate = 0;                       // g + compensate g g (x - pulled): where `pulled` is given
  bool nesterov = false, decoupled = false, maximize = false;
};

// Elements of one array, float or double. All pointers are to `count` elements, no two in the same memory but
// `gradient` and `result`.
template <class T>
struct UpdateJob {
  Rule rule = Rule::get;
  const RuleOptions* options = nullptr;
  std::uint64_t step = 1;  // which update of these weights this is, from 1
  T* weights = nullptr;
  T* first = nullptr;           // sgd: momentum; adam: mean; adagrad: sum of squares; rmsprop: mean square
  T* second = nullptr;          // adam: mean square; rmsprop: momentum
  const T* gradient = nullptr;  // or what is put, or added
  const T* pulled = nullptr;    // the weights that the gradient is of, or null
  T* result = nullptr;          // the weights afterwards, unless it is null; elastic, average: the other's, changed
  std::size_t count = 0;
};

void update(const UpdateJob<float>& job);
void update(const UpdateJob<double>& job);
std::size_t states_of(Rule rule, const RuleOptions& options);  // arrays of state: 0 to 2

}  // namespace ringcomm::kernels
