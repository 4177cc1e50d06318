// Calls the update rules of the selected instruction set.
#include "kernels/update.hpp"

#include "kernels/table.hpp"

namespace ringcomm::kernels {

void update(const UpdateJob<float>& job) { table().update_float(job); }
void update(const UpdateJob<double>& job) { table().update_double(job); }

std::size_t states_of(Rule rule, const RuleOptions& options) {
  const bool momentum = options.momentum != 0;
  switch (rule) {
    case Rule::sgd:
      return momentum ? 1 : 0;
    case Rule::adam:
      return 2;
    case Rule::adagrad:
      return 1;
    case Rule::rmsprop:
      return momentum ? 2 : 1;
    default:
      return 0;
  }
}

}  // namespace ringcomm::kernels
