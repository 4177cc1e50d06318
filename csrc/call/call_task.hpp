// One call on a channel: compare what the ranks ask for, then move the data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.hpp"
#include "call/channel.hpp"
#include "call/comparison.hpp"
#include "memory/memory_pass.hpp"
#include "node/descriptor.hpp"

namespace ringcomm {

class CallTask : public Task {
 public:
  CallTask(Channel& channel, Call&& call);
  Progress advance() override;
  void abandon() noexcept override;
  void nap(std::chrono::nanoseconds longest) override;
  std::string_view label() const { return label_.name; }

 private:
  enum class Phase { begin, comparing_shown, comparing_sent, comparing_fully, moving };
  Descriptor describe() const;
  std::uint64_t even_row() const;  // alltoall: the size of every block, or that they differ
  Progress go_on();
  void begin();
  void show();
  void exchange();  // digests, by messages; small calls' data too
  Progress compare_on();
  void compare_sent();
  void exchange_all();  // descriptors: digests differ
  void compare_shown();
  void compare();  // all_ is complete
  void make_body();
  std::unique_ptr<Task> two_levels() const;
  std::int64_t end_ns() const;
  bool on_host() const { return choice_->path == Path::shared; }

  Channel& channel_;
  Call call_;
  Phase phase_ = Phase::begin;
  const Choice* choice_ = nullptr;  // what runs; the channel's
  std::vector<Descriptor> all_;     // by rank, where they are not alike
  std::uint32_t epoch_ = 0;
  std::int64_t begun_ns_ = 0;
  TraceLabel label_;
  std::unique_ptr<Task> inner_;             // the comparison, then the body; on a host that shares memory, one for both
  MemoryPass* pass_ = nullptr;              // inner_, if it is that one
  std::unique_ptr<Comparison> comparison_;  // by messages
  std::optional<Error> left_;               // what it met; thrown once another's goodbye has had time to come
  std::int64_t patient_until_ = 0;
};

}  // namespace ringcomm
