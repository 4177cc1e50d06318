// Cache ids in a row that ranks have ready together: names submitted in the same order step after step, as those of a
// model are, have such ids, for they were given in that order. So many of them cost the coordinator what one does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ringcomm {

struct IdRange {
  std::uint32_t first = 0, count = 0;
};

class Spans {
 public:
  struct Span {  // ids that the same ranks have ready
    IdRange ids;
    std::vector<char> here;  // by rank
    int count = 0;           // of ranks
    int first_rank = 0;
    std::int64_t since_ns = 0;
  };

  explicit Spans(std::size_t ranks) : ranks_(ranks) {}
  // `rank` has these ready. What all ranks have now is taken out and appended to `complete`. Throws Error(internal) if
  // it has told of one before.
  void tell(int rank, IdRange ids, std::int64_t now_ns, std::vector<IdRange>& complete);
  std::optional<Span> take(std::uint32_t id);          // out of the others it was with
  std::vector<Span> take_since(std::int64_t last_ns);  // those of which a rank told first by then
  bool empty() const { return spans_.empty(); }
  void clear() { spans_.clear(); }

 private:
  using Map = std::map<std::uint32_t, Span>;  // by the first id; they do not overlap
  void cut(std::uint32_t id);                 // what holds `id` begins with it afterwards

  const std::size_t ranks_;
  Map spans_;
};

}  // namespace ringcomm
