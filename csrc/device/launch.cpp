// Fills the kernels' parameters and launches them.
#include "device/launch.hpp"

#include <algorithm>

namespace ringcomm {

void Launcher::launch(const gpu::Entry& entry, void* parameters, unsigned blocks, CuStream stream) {
  const CuFunction function = device_.kernel(std::string(entry.module), entry.name);
  void* arguments[] = {parameters};
  device_.call("launch a kernel", &Driver::launch, function, blocks, 1, 1, gpu::kThreads, 1, 1, 0, stream, arguments,
               nullptr);
}

void Launcher::reduce(std::span<const void* const> sources, std::span<void* const> destinations, Part part, DType dtype,
                      Op op, const kernels::Scale& pre, const kernels::Scale& post, CuStream stream) {
  if (part.count == 0 || destinations.empty()) return;
  const gpu::Entry entry = gpu::reduce_entry(dtype, op);
  gpu::ReduceParameters parameters{};
  std::ranges::copy(sources, parameters.sources);
  std::ranges::copy(destinations, parameters.destinations);
  parameters.source_count = static_cast<unsigned>(sources.size());
  parameters.destination_count = static_cast<unsigned>(destinations.size());
  parameters.first = part.first * entry.parts;
  parameters.count = part.count * entry.parts;
  parameters.pre = gpu::scaling_of(dtype, pre);
  parameters.post = gpu::scaling_of(dtype, post);
  launch(entry, &parameters, gpu::blocks_for(part.count * size_of(dtype), most_), stream);
}

void Launcher::scale(void* data, std::size_t count, DType dtype, const kernels::Scale& by, CuStream stream) {
  if (count == 0) return;
  const gpu::Entry entry = gpu::scale_entry(dtype);
  const gpu::Tensor whole{data, data, count * entry.parts};
  gpu::PackParameters parameters{};
  gpu::plan_pack(parameters, {&whole, 1}, static_cast<unsigned>(size_of(dtype)) / entry.parts, most_);
  parameters.scaling = gpu::scaling_of(dtype, by);
  launch(entry, &parameters, std::min(most_, std::max(1u, parameters.first_chunk[1])), stream);
}

void Launcher::pack(std::vector<gpu::Tensor> tensors, DType dtype, CuStream stream) {
  const gpu::Entry entry = gpu::pack_entry(dtype, dtype);
  std::erase_if(tensors, [](const gpu::Tensor& tensor) { return tensor.count == 0; });
  for (gpu::Tensor& tensor : tensors) tensor.count *= entry.parts;
  const auto size = static_cast<unsigned>(size_of(dtype)) / entry.parts;
  for (std::span<const gpu::Tensor> left = tensors; !left.empty();) {
    gpu::PackParameters parameters{};
    left = left.subspan(gpu::plan_pack(parameters, left, size, most_));
    launch(entry, &parameters, std::min(most_, std::max(1u, parameters.first_chunk[parameters.tensor_count])), stream);
  }
}

void Launcher::arrange(void* to, const void* from, std::span<const gpu::Dimension> dimensions, unsigned size,
                       CuStream stream) {
  gpu::StridedParameters parameters = gpu::strided_parameters(from, to, dimensions, size);
  const gpu::Entry entry{std::string(gpu::kStridedEntry), gpu::kStridedModule};
  launch(entry, &parameters, gpu::blocks_for(parameters.count * 16, most_), stream);  // one thread per element
}

}  // namespace ringcomm
