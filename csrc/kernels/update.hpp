// Applies an optimizer's rule to weights, in one pass over weights, gradient and state. Parameter
// servers use it. Every instruction set gives equal bits. Results may differ from torch.optim's
// single-tensor forms in the last one or two bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

enum class Rule : std::uint8_t { get, put, add, sgd, adam, adagrad, rmsprop, elastic, average };

// Options with the meaning that they have in the rule's class of torch.optim. A rule ignores the
// options of other rules.
struct RuleOptions {
  double lr = 0;
  double momentum = 0, dampening = 0;          // sgd; rmsprop: momentum
  double weight_decay = 0;                     // times the weight, added to gradients; decoupled adam: shrinks weights
  double beta1 = 0.9, beta2 = 0.999, eps = 0;  // adam; eps of adagrad and rmsprop too; beta2: rmsprop's alpha
  double lr_decay = 0;                         // adagrad
  double scale = 1;                            // add: factor of the addend; other rules: factor of the gradient
  double alpha = 0;                            // elastic
  double compensate = 0;                       // adds compensate g g (x - pulled), if `pulled` is given
  bool nesterov = false, decoupled = false, maximize = false;
};

// Update of one array, float or double. All pointers are to `count` elements. Only `gradient` and
// `result` may overlap.
template <class T>
struct UpdateJob {
  Rule rule = Rule::get;
  const RuleOptions* options = nullptr;
  std::uint64_t step = 1;  // number of this update of the weights, from 1
  T* weights = nullptr;
  T* first = nullptr;           // sgd: momentum; adam: mean; adagrad: sum of squares; rmsprop: mean square
  T* second = nullptr;          // adam: mean square; rmsprop: momentum
  const T* gradient = nullptr;  // gradient, or operand of put and add
  const T* pulled = nullptr;    // weights that the gradient was computed with, or null
  T* result = nullptr;          // new weights, if not null; elastic, average: the peer's weights, updated
  std::size_t count = 0;
};

void update(const UpdateJob<float>& job);
void update(const UpdateJob<double>& job);
std::size_t states_of(Rule rule, const RuleOptions& options);  // number of state arrays: 0 to 2

}  // namespace ringcomm::kernels
