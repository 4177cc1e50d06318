// Implements sums of scattered rows (kernels/rows.hpp). Most rows are short, a vector or a few, so
// one call adds all rows of a table. Entries are added row by row, because columns of long rows are
// in different pages. The compiler makes vectors of these loops, also for the ends of rows.

constexpr std::size_t kEntriesAhead = 8;  // entries between a prefetch and its use

enum class Scaling { none, product, quotient };

template <Scaling scaling>
void sum_rows_as(const RowsJob& job, const FloatLane<float>::Scaler& by) {
  const std::size_t width = job.width, step = width * sizeof(float);
  const float factor = by.factor, divisor = by.divisor;
  const auto finish = [=](float value) {
    if constexpr (scaling == Scaling::product) value = value * factor;
    if constexpr (scaling == Scaling::quotient) value = value * factor / divisor;
    return value == value ? value : __builtin_nanf("");  // one NaN, as in FloatLane::canonical()
  };
  const auto fetch = [step](const std::byte* row) {  // at most four lines: the processor fetches the others
    for (std::size_t at = 0; at < step && at < 256; at += 64) __builtin_prefetch(row + at);
  };
  const auto row = [&](std::size_t i) { return reinterpret_cast<const float*>(job.entries[i].values); };
  float* __restrict to = reinterpret_cast<float*>(job.out);
  for (std::size_t k = 0; k < job.count; ++k, to += width) {
    const std::size_t begin = job.firsts[k], end = job.firsts[k + 1];
    const float* const first = row(begin);
    if (job.next) fetch(job.next + job.entries[begin].index * step);
    for (std::size_t ahead = begin + kEntriesAhead; ahead < end + kEntriesAhead && ahead < job.entry_count; ++ahead)
      fetch(job.entries[ahead].values);
    const auto write = [&](const auto& value) {
      for (std::size_t i = 0; i < width; ++i) to[i] = value(i);
    };
    if (end == begin + 1) {
      write([&](std::size_t i) { return scaling == Scaling::none ? first[i] : finish(first[i]); });
      continue;
    }
    const float *sum = first, *const last = row(end - 1);
    for (std::size_t entry = begin + 1; entry < end - 1; ++entry, sum = to)
      write([sum, next = row(entry)](std::size_t i) { return sum[i] + next[i]; });
    write([&](std::size_t i) { return finish(sum[i] + last[i]); });
  }
}

void sum_rows(const RowsJob& job) {
  const FloatLane<float>::Scaler by(job.by);
  if (by.divides) return sum_rows_as<Scaling::quotient>(job, by);
  const bool identity = job.by.factor == 1.0 && job.by.divisor == 1;  // Scale::identity() may not be called here
  identity ? sum_rows_as<Scaling::none>(job, by) : sum_rows_as<Scaling::product>(job, by);
}
