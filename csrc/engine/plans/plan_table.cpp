// Implements PlanTable: allocates streams of tags, and finds plans.
#include "engine/plans/plan_table.hpp"

#include <algorithm>

#include "engine/agreement/agreement.hpp"
#include "engine/plans/plan_run.hpp"

namespace ringcomm {

PlanTable::PlanTable(Context& context)
    : context_(context), by_stream_(static_cast<std::size_t>(context.tags.plans())) {}

PlanTable::~PlanTable() = default;

template <class Is>
const PlanRun* PlanTable::any(Is&& is) const {
  const auto found =
      std::find_if(by_stream_.begin(), by_stream_.end(), [&](const auto& plan) { return plan && is(*plan); });
  return found == by_stream_.end() ? nullptr : found->get();
}

bool PlanTable::has_room() const {
  return std::find(by_stream_.begin(), by_stream_.end(), nullptr) != by_stream_.end();
}

std::size_t PlanTable::free_stream(const std::string& name) const {
  if (any([&](const PlanRun& plan) { return plan.name() == name; })) throw invalid("'", name, "' already exists");
  for (std::size_t i = 0; i < by_stream_.size(); ++i) {
    const std::size_t stream = (next_ + i) % by_stream_.size();
    if (!by_stream_[stream]) return stream;
  }
  throw invalid("a process set has at most ", by_stream_.size(), " plans");
}

std::uint64_t PlanTable::past_steps(const std::string& name) const {
  const auto past = past_steps_.find(name);
  return past == past_steps_.end() ? 0 : past->second;
}

void PlanTable::open(std::shared_ptr<PlanRun> plan) {
  past_steps_.erase(plan->name());
  next_ = plan->stream() + 1;
  by_stream_[plan->stream()] = std::move(plan);
  open_.fetch_add(1, std::memory_order_release);
}

void PlanTable::close(const PlanRun& plan) {
  std::shared_ptr<PlanRun>& here = by_stream_[plan.stream()];
  if (here.get() != &plan) return;
  past_steps_[plan.name()] = plan.steps();
  here.reset();
  open_.fetch_sub(1, std::memory_order_release);
}

const PlanRun* PlanTable::begun() const {
  return any([](const PlanRun& plan) { return plan.input.begun; });
}

const PlanRun* PlanTable::stepping() const {
  return any([](const PlanRun& plan) { return plan.input.stepping(); });
}

std::vector<std::shared_ptr<PlanRun>> PlanTable::all() const {
  if (empty()) return {};
  const std::lock_guard lock(context_.mutex);
  std::vector<std::shared_ptr<PlanRun>> open;
  for (const auto& plan : by_stream_) {
    if (plan) open.push_back(plan);
  }
  return open;
}

std::shared_ptr<PlanRun> PlanTable::find(const std::string& name, const Descriptor& signature) const {
  for (const auto& plan : all()) {
    if (plan->name() == name && same_signature(plan->signature(), signature)) return plan;
  }
  return nullptr;
}

bool PlanTable::answering() const {
  const std::lock_guard lock(context_.mutex);
  return any([](const PlanRun& plan) { return plan.answering(); });
}

bool PlanTable::moving() const {
  if (empty()) return false;
  const std::lock_guard lock(context_.mutex);
  return any([](const PlanRun& plan) { return plan.moving(); });
}

std::vector<std::pair<std::string, std::uint64_t>> PlanTable::steps() const {
  const std::lock_guard lock(context_.mutex);
  std::vector<std::pair<std::string, std::uint64_t>> steps(past_steps_.begin(), past_steps_.end());
  for (const auto& plan : by_stream_) {
    if (plan) steps.emplace_back(plan->name(), plan->steps());
  }
  return steps;
}

}  // namespace ringcomm
