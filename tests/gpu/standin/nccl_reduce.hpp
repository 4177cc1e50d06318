// Declares the arithmetic of the stand-in for NCCL: it rounds every step to the data type, in the
// order of the ranks.
#pragma once

#include <cstddef>

#include "nccl_abi.h"

namespace standin {

std::size_t size_of(ncclDataType_t type);
void reduce(ncclDataType_t type, ncclRedOp_t op, void* into, const void* from, std::size_t count);
void scale(ncclDataType_t type, void* values, std::size_t count, double factor);  // truncates integers
double read_scalar(ncclDataType_t type, const void* value);

}  // namespace standin
