// Implements sums of scattered rows (kernels/rows.hpp). Rows are short, a vector or a few, so one
// call adds all rows of a table.

constexpr std::size_t kEntriesAhead = 8;  // entries between a prefetch and its use

template <bool scaled>
void sum_rows_as(const RowsJob& job) {
  using Lane = FloatLane<float>;
  using V = Lane::Wide;
  const MaybeScaler<scaled, Lane::Scaler> scale(job.by);
  const std::size_t step = job.width * sizeof(float), rest = step % kVectorBytes;
  const auto fetch = [step](const std::byte* row) {  // at most four lines: the processor fetches the others
    for (std::size_t at = 0; at < step && at < 256; at += 64) __builtin_prefetch(row + at);
  };
  std::byte* to = job.out;
  for (std::size_t k = 0; k < job.count; ++k, to += step) {
    const std::size_t begin = job.firsts[k], end = job.firsts[k + 1];
    if (job.next) fetch(job.next + job.entries[begin].index * step);
    for (std::size_t ahead = begin + kEntriesAhead; ahead < end + kEntriesAhead && ahead < job.entry_count; ++ahead)
      fetch(job.entries[ahead].values);
    const auto sum = [&](const auto& read) {
      V value = read(job.entries[begin].values);
      for (std::size_t i = begin + 1; i < end; ++i) value = value + read(job.entries[i].values);
      return scaled || end > begin + 1 ? Lane::canonical(scale(value)) : value;
    };
    for (std::size_t at = 0; at + kVectorBytes <= step; at += kVectorBytes)
      store(to + at, sum([at](const std::byte* row) { return load<V>(row + at); }));
    if (rest == 0) continue;
    const V last = sum([&](const std::byte* row) {
      V padded = {};
      __builtin_memcpy(&padded, row + step - rest, rest);
      return padded;
    });
    __builtin_memcpy(to + step - rest, &last, rest);
  }
}

void sum_rows(const RowsJob& job) {
  const bool scaled = job.by.factor != 1.0 || job.by.divisor != 1;
  scaled ? sum_rows_as<true>(job) : sum_rows_as<false>(job);
}
