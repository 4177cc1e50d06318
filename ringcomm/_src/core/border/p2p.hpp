// Point-to-point messages for _p2p.pxi: sizes of NumPy arrays, read from the array's struct, and
// functions with types that Cython can pass.
#pragma once

#include <Python.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "border/call_cache.hpp"
#include "engine/worker/message_source.hpp"
#include "p2p/point_to_point.hpp"

namespace ringcomm_border {

// A cache of element sizes, by dtype, for dtypes whose elements are sent as plain bytes.
class ElementSizes {
 public:
  ElementSizes() = default;
  ElementSizes(const ElementSizes&) = delete;
  ~ElementSizes() {
    for (const auto& [descr, size] : known_) Py_DECREF(descr);
  }
  // Returns the size in bytes of an array of exactly `type`. Returns -1 if it is not of this type,
  // not contiguous, of an unknown dtype, or read-only although `written`.
  Py_ssize_t bytes_of(PyObject* object, PyTypeObject* type, bool written) const {
    if (Py_TYPE(object) != type) return -1;
    const PyArrayObject* const array = array_of(object);
    const int needed = written ? kPlain | NPY_ARRAY_WRITEABLE : kPlain;
    if ((PyArray_FLAGS(array) & needed) != needed) return -1;
    for (const auto& [descr, size] : known_) {
      if (descr != dtype_of(object)) continue;
      Py_ssize_t nbytes = size;
      for (int i = 0; i < PyArray_NDIM(array); ++i) nbytes *= PyArray_DIMS(array)[i];
      return nbytes;
    }
    return -1;
  }
  void learn(PyObject* descr, Py_ssize_t size) {
    if (known_.size() >= 16) return;
    Py_INCREF(descr);
    known_.emplace_back(descr, size);
  }

 private:
  std::vector<std::pair<PyObject*, Py_ssize_t>> known_;
};

inline std::shared_ptr<PointToPoint> point_to_point(int rank, int size, std::shared_ptr<Node> node,
                                                    std::vector<int> on_host, std::shared_ptr<Transport> transport,
                                                    int first_tag, std::size_t piece, std::shared_ptr<Worker> worker,
                                                    std::int64_t spin_ns, double stall_warn_seconds,
                                                    std::shared_ptr<Account> account) {
  const bool attended = worker->threaded();
  return std::make_shared<PointToPoint>(PointToPoint::Group{
      rank, size, std::move(node), std::move(on_host), std::move(transport), first_tag, piece,
      helper_of(std::move(worker)), true, attended, spin_ns, stall_warn_seconds, std::move(account)});
}
// Describes what may still use a failed request's memory.
struct Remains {
  bool lent = false;                               // MPI or a peer may use it forever
  std::vector<std::shared_ptr<Request>> requests;  // requests that use it until they are done
  void add(const Request& request) {
    lent |= request.lent;
    if (request.successor) requests.push_back(request.successor);
  }
};
inline Envelope run(PointToPoint& ranks, bool sends, int peer, int tag, void* data, std::size_t nbytes,
                    bool (*interrupted)(), Remains& remains) {
  Request request(sends ? Request::Kind::send : Request::Kind::receive, peer, tag, data, nbytes);
  try {
    ranks.run(request, interrupted);
  } catch (...) {
    remains.add(request);
    throw;
  }
  return request.status;
}
inline Envelope send_receive(PointToPoint& ranks, int dest, int send_tag, void* data, std::size_t nbytes, int source,
                             int tag, void* into, std::size_t room, bool (*interrupted)(), Remains& remains) {
  Request outgoing(Request::Kind::send, dest, send_tag, data, nbytes);
  Request incoming(Request::Kind::receive, source, tag, into, room);
  try {
    ranks.run(outgoing, incoming, interrupted);
  } catch (...) {
    remains.add(outgoing);
    remains.add(incoming);
    throw;
  }
  return incoming.status;
}
inline std::shared_ptr<Request> start(MessageSource& source, bool sends, int peer, int tag, void* data,
                                      std::size_t nbytes, std::string among) {
  const auto kind = sends ? Request::Kind::send : Request::Kind::receive;
  auto request = std::make_shared<Request>(kind, peer, tag, data, nbytes);
  request->among = std::move(among);
  source.start(request);
  return request;
}
inline bool wait(MessageSource& source, const Request& request, double seconds, bool (*interrupted)()) {
  constexpr double kLongest = 3e8;  // seconds; fits in int64 nanoseconds
  const std::int64_t deadline =
      seconds < 0 ? kForEver : now_ns() + static_cast<std::int64_t>(std::min(seconds, kLongest) * 1e9);
  return source.wait(request, deadline, interrupted);
}
inline void check(Request& request) {
  request.reported = true;
  if (request.error) throw *request.error;
}
inline bool probe(PointToPoint& ranks, int source, int tag, bool waits, bool (*interrupted)(), Envelope& found) {
  if (waits) {
    found = ranks.probe(source, tag, interrupted);
    return true;
  }
  const auto seen = ranks.iprobe(source, tag);
  if (seen) found = *seen;
  return seen.has_value();
}
}  // namespace ringcomm_border
