// Declares helpers of the functions that queue operations.
#pragma once

#include "cuda_abi.h"
#include "stream.hpp"

namespace standin {

CUresult queue(CUstream stream, Operation operation, Point* point = nullptr);
Operation operation(std::function<void()> run);
CUresult free_device(CUdeviceptr address);  // immediately

}  // namespace standin
