// The state that the parts of an engine share: configuration, transport, tags, and the mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/trace.hpp"
#include "engine/agreement/control.hpp"
#include "engine/config.hpp"
#include "engine/tags.hpp"
#include "transport/counted.hpp"

namespace ringcomm {

struct Context {
  Context(std::shared_ptr<Transport> t, EngineConfig c)
      : config(std::move(c)), transport(std::move(t)), tags(transport->tag_limit()),
        control_transport(transport, agreement->sent, agreement->received), control(control_transport) {}
  const EngineConfig config;                   // with an account, which all channels share
  const std::shared_ptr<Transport> transport;  // transport of the channels
  const TagMap tags;
  mutable std::mutex
      mutex;  // guards the data that user threads and the worker share; held briefly, never during a callback
  std::size_t open = 0;  // operations in flight in all sets; guarded
  const std::shared_ptr<Entry> agreement = config.channel.account->entry("agreement", "letters");
  CountedTransport control_transport;  // the same transport, for messages outside channels; used by the worker
  Control control;                     // used by the worker

  int rank() const { return transport->rank(); }
  std::size_t in_flight() const {
    const std::lock_guard lock(mutex);
    return open;
  }
  void traced(const char* category, const std::string& name, std::int64_t begin, std::int64_t end,
              std::uint64_t bytes = 0, std::string_view detail = {}) const {
    if (trace().enabled()) trace().record(category, name, detail, begin, end, bytes, rank(), 1);
  }
};

}  // namespace ringcomm
