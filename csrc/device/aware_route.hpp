// An MPI that takes addresses of GPUs: arrays go in its messages from one GPU's memory to another's, on any hosts. It
// only moves them, and knows no streams; our kernels reduce, so that the bits are those of every other way.
//
//   stream   input ready ─┐                 ┌→ reduce everybody's slice ─┐
//   host                  └ exchange slices ┘                            └ exchange results
#pragma once

#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::unique_ptr<Route> make_aware_route(Device& device);

}  // namespace ringcomm
