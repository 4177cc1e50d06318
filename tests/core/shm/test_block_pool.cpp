// Tests BlockPool, which keeps blocks of requested sizes in an arena, and the C functions that
// serve them.
#include "shm/block_pool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/imports.hpp"
#include "check.hpp"
#include "shm/served_memory.hpp"

using namespace ringcomm;

constexpr std::size_t kBlock = 256 << 10;

static std::shared_ptr<Node> one_node() { return Node::for_threads(1).front(); }

static void recycles_by_size_up_to_its_number() {
  const auto node = one_node();
  BlockPool pool(node);
  CHECK(!pool.take(kBlock));
  pool.serve(kBlock, 2);
  void* const first = pool.take(kBlock);
  void* const second = pool.take(kBlock);
  CHECK(first && second && first != second && !pool.take(kBlock) && !pool.take(kBlock - 1));
  CHECK(node->offset_of(first, kBlock) != kPrivate);
  int other = 0;
  CHECK(!pool.give_back(&other));
  CHECK(pool.give_back(first) && !pool.give_back(first) && pool.take(kBlock) == first);
  pool.serve(kBlock, -2);  // blocks in use stay valid
  std::memset(second, 1, kBlock);
  CHECK(pool.give_back(first) && pool.give_back(second) && pool.in_use() == 0 && !pool.take(kBlock));
}

static void falls_back_where_memory_is_refused() {
  BlockPool pool(one_node());
  const std::size_t absurd = std::size_t{1} << 50;
  pool.serve(absurd, 1);
  CHECK(!pool.take(absurd) && !pool.take(absurd));
}

static void* serve(std::size_t nbytes) {
  void* block = nullptr;
  CHECK(served_memalign(&block, 64, nbytes) == 0 && block);
  std::memset(block, 1, nbytes);
  return block;
}

static void blocks_outlive_their_job() {
  const auto node = one_node();
  auto pool = std::make_shared<BlockPool>(node);
  pool->serve(kBlock, 1);
  served_free(serve(kBlock));  // before any pool serves, this is the C library's memory
  serve_from(pool);
  void* const ours = serve(kBlock);
  void* const others = serve(kBlock);
  CHECK(node->offset_of(ours, kBlock) != kPrivate && node->offset_of(others, kBlock) == kPrivate);
  std::weak_ptr<BlockPool> alive = pool;
  serve_no_more_from(*pool);
  pool.reset();
  CHECK(!alive.expired());
  std::memset(ours, 2, kBlock);
  served_free(others);
  served_free(ours);
  CHECK(alive.expired());
}

// Serves two jobs with different sizes; the end of one does not affect the other.
static void two_jobs_at_once() {
  const auto first = std::make_shared<BlockPool>(one_node()), second = std::make_shared<BlockPool>(one_node());
  first->serve(kBlock, 1);
  second->serve(2 * kBlock, 1);
  for (const auto& pool : {first, second}) serve_from(pool);
  void* const of_first = serve(kBlock);
  void* const of_second = serve(2 * kBlock);
  CHECK(first->in_use() == 1 && second->in_use() == 1);
  for (const auto& pool : {first, second}) pool->serve(3 * kBlock, 1);
  void* const of_last = serve(3 * kBlock);
  CHECK(second->in_use() == 2);
  served_free(of_last);
  serve_no_more_from(*second);
  served_free(of_first);
  CHECK(first->in_use() == 0);
  served_free(serve(kBlock));
  served_free(of_second);
  CHECK(second->in_use() == 0 && second.use_count() == 1);
  void* const others = serve(2 * kBlock);
  CHECK(second->in_use() == 0);
  served_free(others);
  serve_no_more_from(*first);
}

static void a_child_has_blocks_of_its_own() {
  const auto node = one_node();
  const auto pool = std::make_shared<BlockPool>(node);
  pool->serve(kBlock, 2);
  serve_from(pool);
  auto* const block = static_cast<char*>(serve(kBlock));
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = block[0] == 1 && block[kBlock - 1] == 1;
    std::memset(block, 3, kBlock);
    void* const fresh = serve(kBlock);
    good = good && node->offset_of(fresh, 1) == kPrivate;
    served_free(fresh);
    served_free(block);
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(block[0] == 1 && block[kBlock - 1] == 1);
  served_free(block);
  serve_no_more_from(*pool);
}

static void many_threads() {
  const auto pool = std::make_shared<BlockPool>(one_node());
  pool->serve(kBlock, 3);
  serve_from(pool);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([seed] {
      std::minstd_rand random(seed + 1);
      std::vector<std::pair<char*, char>> blocks;
      for (int i = 0; i < 2000; ++i) {
        if (random() % 2 == 0 && blocks.size() < 4) {
          void* block = nullptr;
          CHECK(served_memalign(&block, 64, kBlock) == 0);
          blocks.emplace_back(static_cast<char*>(block), static_cast<char>(random()));
          *blocks.back().first = blocks.back().second;
        } else if (!blocks.empty()) {
          CHECK(*blocks.back().first == blocks.back().second);
          served_free(blocks.back().first);
          blocks.pop_back();
        }
      }
      for (const auto& block : blocks) served_free(block.first);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(pool->in_use() == 0);
  serve_no_more_from(*pool);
}

int main() {
  recycles_by_size_up_to_its_number();
  falls_back_where_memory_is_refused();
  blocks_outlive_their_job();
  two_jobs_at_once();
  a_child_has_blocks_of_its_own();
  many_threads();
  CHECK(!imports("libstdc++", "malloc").empty() && imports("libstdc++", "no_such_function").empty());
  CHECK(imports("libnothing", "malloc").empty());
  return 0;
}
