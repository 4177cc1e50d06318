// Compiles the kernels as plain C++ into a library for the stand-in driver. For each kernel `name`,
// name_host runs its grid thread by thread, and name_parameter_sizes gives the sizes of a launch's
// arguments.
#include <cstddef>

#include "device/kernels/fill.hpp"
#include "device/kernels/pack.hpp"
#include "device/kernels/reduce.hpp"
#include "device/kernels/strided.hpp"

using namespace ringcomm::gpu;

namespace {

using Translate = const void* (*)(const void*);
Translate translate = [](const void* pointer) { return pointer; };

const void* here(const void* pointer) { return translate(pointer); }
void* here(void* pointer) { return const_cast<void*>(translate(pointer)); }

// Translates the pointers of parameters to addresses that the host may read.
void bring(ReduceParameters& p) {
  for (unsigned s = 0; s < p.source_count; ++s) p.sources[s] = here(p.sources[s]);
  for (unsigned d = 0; d < p.destination_count; ++d) p.destinations[d] = here(p.destinations[d]);
}
void bring(PackParameters& p) {
  for (unsigned t = 0; t < p.tensor_count; ++t) {
    if (p.counts[t] == 0) continue;
    p.sources[t] = here(p.sources[t]);
    p.destinations[t] = here(p.destinations[t]);
  }
}
void bring(FillParameters& p) { p.destination = here(p.destination); }
void bring(StridedParameters& p) {
  p.source = here(p.source);
  p.destination = here(p.destination);
}

template <class Parameters, class Body>
void run_grid(void** arguments, unsigned blocks, unsigned threads, Body body) {
  Parameters parameters = *static_cast<const Parameters*>(arguments[0]);
  bring(parameters);
  for (unsigned block = 0; block < blocks; ++block)
    for (unsigned thread = 0; thread < threads; ++thread) body(parameters, Place{block, blocks, thread, threads});
}

}  // namespace

extern "C" void standin_set_translate(Translate to) { translate = to; }

#define RC_KERNEL(name, Parameters, body)                                                                       \
  extern "C" void name##_host(void** arguments, unsigned grid_x, unsigned block_x) {                            \
    if (block_x > kMostThreads) __builtin_trap();                                                               \
    run_grid<Parameters>(arguments, grid_x, block_x, [](const Parameters& p, Place place) { body(p, place); }); \
  }                                                                                                             \
  extern "C" std::size_t name##_parameter_sizes(std::size_t* out) {                                             \
    if (out != nullptr) *out = sizeof(Parameters);                                                              \
    return 1;                                                                                                   \
  }
#define RC_MODULE_FLOAT16
#define RC_MODULE_BFLOAT16
#define RC_MODULE_FLOAT32
#define RC_MODULE_FLOAT64
#define RC_MODULE_INTEGERS
#define RC_MODULE_COMPOSITES
#define RC_MODULE_FILL
#define RC_MODULE_STRIDED
#include "device/kernels/entries.inl"
