// Implements Request and the texts that name requests in messages to users.
#include "p2p/request.hpp"

#include "base/trace.hpp"

namespace ringcomm {

namespace {

std::string peer_text(int peer) { return peer == kAnySource ? "any" : std::to_string(peer); }
std::string tag_text(int tag) { return tag == kAnyTag ? "any" : std::to_string(tag); }

}  // namespace

std::string text_of(const Request& request) {
  const bool sends = request.kind == Request::Kind::send;
  return (sends ? "send(dest=" : "recv(source=") + peer_text(request.peer) + ", tag=" + tag_text(request.tag) + ")" +
         (request.among.empty() ? "" : " in ") + request.among + " of " + (sends ? "" : "at most ") +
         std::to_string(request.nbytes) + " bytes";
}

std::string text_of_probe(int source, int tag) {
  return "probe(source=" + peer_text(source) + ", tag=" + tag_text(tag) + ")";
}

std::string text_of_message(const Envelope& envelope) {
  return "the message from rank " + std::to_string(envelope.source) + " with tag " + std::to_string(envelope.tag) +
         " (" + std::to_string(envelope.nbytes) + " bytes)";
}

Error given_up_error(const Envelope& envelope) {
  return Error(
      ErrorKind::left,
      "rank " + std::to_string(envelope.source) + " cancelled " + text_of_message(envelope) + " during the transfer",
      {envelope.source});
}

void Request::record() const {
  const std::string with = kind == Kind::send ? "send to " + peer_text(peer) : "receive from " + peer_text(peer);
  trace().record("message", among.empty() ? with : with + " in " + among, "tag " + tag_text(tag), traced_ns, now_ns(),
                 kind == Kind::send ? nbytes : status.nbytes, 0, 0);
}

std::shared_ptr<Request> Request::hand_over() {
  successor = std::make_shared<Request>(kind, peer, tag, data, nbytes);
  successor->id = id;
  successor->among = among;
  successor->moved = moved;
  successor->target = target;
  successor->reported = true;  // the caller gets the interruption as its error instead
  return successor;
}

void Request::fail(const Error& why) {
  error.emplace(why.kind(), text_of(*this) + ": " + why.what(), why.ranks());
  finish();
}

}  // namespace ringcomm
