// Tests services: messages between any ranks at any time, beside collectives, and their end.
#include "engine/worker/service.hpp"

#include <deque>
#include <thread>

#include "base/clock.hpp"
#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

// A service that sends back each request. A request's first byte is 1, an answer's 0.
class Echo final : public Service {
 public:
  struct Answer final : Operation {
    using Operation::Operation;
    std::vector<std::byte> bytes;
    int peer = kAnyPeer;
  };

  // Sends a request, from any thread. Answers of one rank arrive in the order of the requests.
  std::shared_ptr<Answer> ask(int peer, std::vector<std::byte> bytes) {
    auto answer = std::make_shared<Answer>("echo");
    answer->peer = peer;
    const std::lock_guard lock(mutex_);
    if (over_) {
      answer->finish(over_);
    } else if (departed_.contains(peer)) {
      answer->finish(departed_[peer]);
    } else {
      bytes.insert(bytes.begin(), std::byte{1});
      requests_.push_back({std::move(bytes), answer});
    }
    return answer;
  }

  bool turn(Mail& mail) override {
    ++turns;
    const std::lock_guard lock(mutex_);
    bool moved = !requests_.empty();
    for (; !requests_.empty(); requests_.pop_front()) {
      auto& [bytes, answer] = requests_.front();
      mail.send(answer->peer, std::move(bytes));  // if this throws, end() still finds the request
      waiting_[answer->peer].push_back(answer);
    }
    while (std::optional<MailMessage> message = mail.receive()) {
      moved = true;
      if (message->bytes.at(0) == std::byte{1}) {
        message->bytes[0] = std::byte{0};
        mail.send(message->peer, std::move(message->bytes));
        continue;
      }
      auto& waiting = waiting_[message->peer];
      if (waiting.empty()) continue;  // the peer was seen to leave before its last letters were read
      const auto answer = waiting.front();
      waiting.pop_front();
      answer->bytes.assign(message->bytes.begin() + 1, message->bytes.end());
      answer->finish();
    }
    return moved;
  }
  void left(int rank, const Error& why) override {
    const std::lock_guard lock(mutex_);
    departed_[rank] = std::make_exception_ptr(why);
    for (const auto& answer : waiting_[rank]) answer->finish(departed_[rank]);
    waiting_[rank].clear();
    std::erase_if(requests_, [&](auto& request) {
      if (request.second->peer != rank) return false;
      request.second->finish(departed_[rank]);
      return true;
    });
  }
  void end(const Error& why) override {
    const std::lock_guard lock(mutex_);
    over_ = std::make_exception_ptr(why);
    for (auto& [bytes, answer] : requests_) answer->finish(over_);
    for (auto& [peer, answers] : waiting_) {
      for (const auto& answer : answers) answer->finish(over_);
    }
    waiting_.clear();
  }

  std::atomic<int> turns{0};

 private:
  std::mutex mutex_;
  std::deque<std::pair<std::vector<std::byte>, std::shared_ptr<Answer>>> requests_;
  std::map<int, std::deque<std::shared_ptr<Answer>>> waiting_;
  std::map<int, std::exception_ptr> departed_;
  std::exception_ptr over_;
};

struct Served : Rank {
  template <class... A>
  explicit Served(A&&... arguments) : Rank(std::forward<A>(arguments)...) {
    for (const auto& echo : echoes) engine->add_service(echo);
  }
  std::shared_ptr<Echo::Answer> ask(int peer, std::size_t nbytes, int salt) {
    auto answer = echoes[salt % 2]->ask(peer, bytes(nbytes, salt));
    engine->wake();
    return answer;
  }
  static std::vector<std::byte> bytes(std::size_t nbytes, int salt) {
    std::vector<std::byte> made(nbytes);
    for (std::size_t i = 0; i < nbytes; ++i) made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(salt));
    return made;
  }
  // requests alternate between them
  const std::shared_ptr<Echo> echoes[2] = {std::make_shared<Echo>(), std::make_shared<Echo>()};
};

// Sends small and large requests from every rank to every rank, including itself, while collectives
// run.
void answers_while_collectives_run(int size, bool threaded) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Served r(hub, rank, size, EngineConfig{}, threaded);
    Random random(static_cast<std::uint64_t>(rank));
    std::vector<std::vector<std::int32_t>> data(12, std::vector<std::int32_t>(3000, 1));
    std::vector<Op_> ops;
    std::vector<std::shared_ptr<Echo::Answer>> answers;
    std::vector<std::size_t> lengths;
    for (std::size_t i = 0; i < data.size(); ++i) {
      ops.push_back(r.engine->submit(0, named("x" + std::to_string(i), data[i])));
      for (int k = 0; k < 4; ++k) {
        lengths.push_back(random() % (k == 0 ? 100'000 : 300));
        answers.push_back(r.ask(static_cast<int>(random() % static_cast<unsigned>(size)), lengths.back(), k));
      }
    }
    for (const Op_& op : ops) CHECK(!r.outcome(op));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      CHECK(!r.outcome(answers[i]));
      CHECK(answers[i]->bytes == Served::bytes(lengths[i], static_cast<int>(i % 4)));
    }
    for (const auto& d : data) check_data(d, size);
    if (!threaded) {  // a rank that waits at the barrier gives no turns
      std::vector<std::int32_t> last(1, 1);
      CHECK(!r.outcome(r.engine->submit(0, named("last", last))));
    } else {
      end.arrive_and_wait();
      CHECK(!r.outcome(r.ask((rank + 1) % size, 10, 3)));  // both ranks are idle otherwise
      end.arrive_and_wait();
    }
    r.engine->leave();
    CHECK(r.outcome(r.ask(0, 10, 0)).value().kind() == ErrorKind::shut_down);
  });
}

// Sends no requests: the service gets one turn per 3 ms, and no more.
void idle_turns_are_few() {
  const auto hub = make_threads_hub(2);
  std::barrier end(2);
  on_ranks(2, [&](int rank) {
    Served r(hub, rank, 2);
    CHECK(!r.outcome(r.ask(1 - rank, 10, 0)));
    end.arrive_and_wait();
    // shortly after small requests, the worker polls more often
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const std::int64_t begin = now_ns();
    const int before = r.echoes[0]->turns;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int turns = r.echoes[0]->turns - before;
    CHECK(turns > 0 && turns <= (now_ns() - begin) / 3'000'000 + 10);
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Sends requests to a rank that leaves or dies: the wait ends with an error that names the cause.
void a_peer_goes(int size, bool dies) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Served r(hub, rank, size);
    CHECK(!r.outcome(r.ask((rank + 1) % size, 10, 0)));
    end.arrive_and_wait();
    const int goes = size - 1;
    if (rank == goes) {
      if (dies) {
        threads_kill(*hub, rank);
      } else {
        r.engine->leave();
      }
    } else {
      std::optional<Error> error;
      while (!(error = r.outcome(r.ask(goes, 20'000, 1)))) {  // it may answer until it leaves
      }
      CHECK(error->kind() == (dies ? ErrorKind::peer_lost : ErrorKind::left) &&
            error->ranks() == std::vector<int>{goes});
      if (!dies) CHECK(size < 3 || !r.outcome(r.ask(0, 10, 2)));  // the other ranks still answer
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Sends requests that get no answer: shutdown ends the waits.
void left_unanswered() {
  const auto hub = make_threads_hub(2);
  std::barrier end(2);
  on_ranks(2, [&](int rank) {
    Rank silent(hub, rank, 2);
    const auto echo = std::make_shared<Echo>();
    if (rank == 0) silent.engine->add_service(echo);
    const auto answer = echo->ask(1, {});
    if (rank == 0) silent.engine->leave();
    if (rank == 0) CHECK(silent.outcome(answer).value().kind() == ErrorKind::shut_down);
    end.arrive_and_wait();
    silent.engine->leave();
  });
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) answers_while_collectives_run(size, true);
  answers_while_collectives_run(3, false);
  idle_turns_are_few();
  for (const bool dies : {false, true}) a_peer_goes(3, dies);
  left_unanswered();
  std::puts("services: all passed");
  return 0;
}
