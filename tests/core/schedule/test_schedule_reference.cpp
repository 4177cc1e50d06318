// Runs every built-in on real numbers, with all ranks in one thread, and compares with the
// collective's definition.
#include <cstring>
#include <numeric>

#include "base/cuts.hpp"
#include "base/types.hpp"
#include "check.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;
using simulation::all_ranks;
using simulation::at;

namespace {

template <class T>
using Buffer = std::vector<T>;
template <class T>
using Blocks = std::vector<std::vector<Buffer<T>>>;  // [rank][block]

template <class T>
Buffer<T> input_of(int rank, std::size_t count) {
  Buffer<T> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto whole = static_cast<std::int64_t>((i * 7919 + at(rank) * 104729 + 13) % 1000) - 500;
    x[i] = std::is_integral_v<T> ? static_cast<T>(whole) : static_cast<T>(static_cast<double>(whole) / 3.0);
  }
  return x;
}

template <class T>
Buffer<T> slice(const Buffer<T>& x, Part part) {
  const auto first = x.begin() + static_cast<std::ptrdiff_t>(part.first);
  return {first, first + static_cast<std::ptrdiff_t>(part.count)};
}

template <class T>
Buffer<T> plus(const Buffer<T>& a, const Buffer<T>& b) {
  Buffer<T> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

template <class T>
void run(const std::vector<Schedule>& schedules, Blocks<T>& blocks) {
  static std::mt19937 random{42};
  for (const Schedule& s : schedules) {
    for (const int like : s.temps) blocks[at(s.rank)].emplace_back(blocks[at(s.rank)][at(like)].size(), T{77});
  }
  const auto fits = [](const Buffer<T>& a, const Buffer<T>& b) { return a.size() == b.size(); };
  CHECK(simulation::Simulator<Buffer<T>>::run(schedules, blocks, random, fits, plus<T>));
}

// Checks collectives with even splits: allreduce, reduce, broadcast.
template <class T>
void whole_buffers(const Algorithm& algorithm, int p, std::size_t count, int root) {
  const auto schedules = all_ranks(algorithm, p, root);
  Blocks<T> blocks(at(p));
  Buffer<T> sum(count);
  for (const Schedule& s : schedules) {
    const Buffer<T> x = input_of<T>(s.rank, count);
    sum = plus(sum, x);
    for (int b = 0; b < s.blocks; ++b) blocks[at(s.rank)].push_back(slice(x, split(count, at(s.blocks), at(b))));
  }
  run(schedules, blocks);
  const Buffer<T> wanted = algorithm.collective == Collective::broadcast ? input_of<T>(root, count) : sum;
  Buffer<T> first;
  for (const Schedule& s : schedules) {
    if (s.collective == Collective::reduce && s.rank != root) continue;
    Buffer<T> got;
    for (int b = 0; b < s.blocks; ++b) {
      got.insert(got.end(), blocks[at(s.rank)][at(b)].begin(), blocks[at(s.rank)][at(b)].end());
    }
    CHECK(got.size() == count);
    if (first.empty()) first = got;
    CHECK(count == 0 || std::memcmp(got.data(), first.data(), count * sizeof(T)) == 0);  // equal bits on all ranks
    for (std::size_t i = 0; i < count; ++i) {
      const double error = static_cast<double>(got[i]) - static_cast<double>(wanted[i]);
      CHECK(std::is_integral_v<T> ? got[i] == wanted[i] : error < 1e-2 && error > -1e-2);
    }
  }
}

// Checks parts of unequal size, some of them empty.
void parts(const Algorithm& algorithm, int p) {
  const auto schedules = all_ranks(algorithm, p);
  const auto length = [](int block) { return at(block * 5 % 7); };
  Blocks<std::int64_t> blocks(at(p));
  for (int r = 0; r < p; ++r) {
    for (int b = 0; b < p; ++b) {
      const bool given = algorithm.collective == Collective::reducescatter || b == r;
      blocks[at(r)].push_back(given ? input_of<std::int64_t>(r * p + b, length(b))
                                    : Buffer<std::int64_t>(length(b), 99));
    }
  }
  run(schedules, blocks);
  for (int r = 0; r < p; ++r) {
    for (int b = 0; b < p; ++b) {
      if (algorithm.collective == Collective::allgather) {
        CHECK(blocks[at(r)][at(b)] == input_of<std::int64_t>(b * p + b, length(b)));
      }
    }
    if (algorithm.collective == Collective::allgather) continue;
    Buffer<std::int64_t> sum(length(r));
    for (int q = 0; q < p; ++q) sum = plus(sum, input_of<std::int64_t>(q * p + r, length(r)));
    CHECK(blocks[at(r)][at(r)] == sum);
  }
}

void exchange(const Algorithm& algorithm, int p) {
  const auto schedules = all_ranks(algorithm, p);
  const auto length = [&](int from, int to) {
    return algorithm.equal_blocks ? std::size_t{3} : at((from * 3 + to * 5) % 7);
  };
  Blocks<std::int64_t> blocks(at(p));
  for (int r = 0; r < p; ++r) {
    for (int q = 0; q < p; ++q) blocks[at(r)].push_back(input_of<std::int64_t>(r * p + q, length(r, q)));
    for (int q = 0; q < p; ++q) blocks[at(r)].emplace_back(length(q, r), 99);
  }
  run(schedules, blocks);
  for (int r = 0; r < p; ++r) {
    for (int q = 0; q < p; ++q) {
      CHECK(blocks[at(r)][at(q)] == input_of<std::int64_t>(r * p + q, length(r, q)));
      CHECK(blocks[at(r)][at(p + q)] == input_of<std::int64_t>(q * p + r, length(q, r)));
    }
  }
}

void barrier(const Algorithm& algorithm, int p) {
  const auto schedules = all_ranks(algorithm, p);
  Blocks<std::int64_t> blocks(at(p));
  for (auto& mine : blocks) mine.assign(1, {1});
  run(schedules, blocks);
  for (const auto& mine : blocks) CHECK(mine[0][0] >= p);
}

void scans(const Algorithm& algorithm, int p, std::size_t count) {
  const auto schedules = all_ranks(algorithm, p);
  Blocks<std::int64_t> blocks(at(p));
  for (int r = 0; r < p; ++r) {
    const auto x = input_of<std::int64_t>(r, count);
    for (int b = 0; b < schedules[0].blocks; ++b)
      blocks[at(r)].push_back(slice(x, split(count, at(schedules[0].blocks), at(b))));
  }
  run(schedules, blocks);
  Buffer<std::int64_t> sum(count);
  for (int r = 0; r < p; ++r) {
    const Buffer<std::int64_t> before = sum;
    sum = plus(sum, input_of<std::int64_t>(r, count));
    if (algorithm.collective == Collective::exscan && r == 0) continue;
    Buffer<std::int64_t> got;
    for (const auto& block : blocks[at(r)]) got.insert(got.end(), block.begin(), block.end());
    CHECK(got == (algorithm.collective == Collective::scan ? sum : before));
  }
}

void every_size(const Algorithm& algorithm, int p) {
  switch (algorithm.collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::broadcast:
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(p - 1), at(p), at(p + 1), std::size_t{997}}) {
        for (const int root : {0, p / 2, p - 1}) {
          whole_buffers<std::int64_t>(algorithm, p, count, algorithm.collective == Collective::allreduce ? 0 : root);
        }
        whole_buffers<float>(algorithm, p, count, 0);
      }
      return;
    case Collective::allgather:
    case Collective::reducescatter:
      return parts(algorithm, p);
    case Collective::alltoall:
      return exchange(algorithm, p);
    case Collective::barrier:
      return barrier(algorithm, p);
    case Collective::scan:
    case Collective::exscan:
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{97}}) scans(algorithm, p, count);
      return;
  }
}

}  // namespace

int main() {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int p : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24}) every_size(algorithm, p);
  }
  std::puts("schedules on numbers: passed");
}
