// Calls the kernel for scattered rows of the selected instruction set.
#include "kernels/rows.hpp"

#include "kernels/table.hpp"

namespace ringcomm::kernels {

void sum_rows(const RowsJob& job) { table().sum_rows(job); }

}  // namespace ringcomm::kernels
