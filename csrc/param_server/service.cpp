// Implements Service: distributes messages to the server and the client.
#include "param_server/service.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringcomm::store {

bool Service::turn(Mail& mail) {
  bool moved = false;
  for (; auto message = mail.receive(); moved = true) {
    Head head;
    std::memcpy(&head, message->bytes.data(), std::min(message->bytes.size(), sizeof head));
    if (head.answer) {
      client.answered(message->peer, message->bytes);
    } else {
      server.take(message->peer, std::move(message->bytes));
    }
  }
  moved |= server.turn(mail);
  moved |= client.send(mail);
  return moved;
}

void Service::left(int rank, const Error& why) {
  server.left(rank);
  client.left(rank, why);
}

}  // namespace ringcomm::store
