// Implements Service: distributes letters to the server and the client.
#include "param_server/service.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringcomm::store {

bool Service::turn(Mail& mail) {
  bool moved = false;
  for (; auto letter = mail.receive(); moved = true) {
    Head head;
    std::memcpy(&head, letter->bytes.data(), std::min(letter->bytes.size(), sizeof head));
    if (head.answer) {
      client.answered(letter->peer, letter->bytes);
    } else {
      server.take(letter->peer, std::move(letter->bytes));
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
