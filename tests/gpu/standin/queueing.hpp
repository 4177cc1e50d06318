// What the functions that queue something share.
#pragma once

#include "cuda_abi.h"
#include "stream.hpp"

namespace standin {

CUresult queue(CUstream stream, Operation operation, Point* point = nullptr);
Operation operation(std::function<void()> run);
CUresult free_device(CUdeviceptr address);  // at once

}  // namespace standin
