// Random numbers that are the same in every run and with every standard library.
#pragma once

#include <cstddef>
#include <random>

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }
