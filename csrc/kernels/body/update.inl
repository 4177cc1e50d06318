// Implements the rules of optimizers (kernels/update.hpp). Options are rounded to the element's
// type once, as torch does with scalars.

INLINE float root(float x) { return __builtin_sqrtf(x); }
INLINE double root(double x) { return __builtin_sqrt(x); }

// The gradient as rules use it: scaled, negated for maximisation, compensated for delay, with
// weight decay.
template <class T, bool kPulled>
struct Slope {
  T scale, compensate, decay;
  const T* gradient;
  const T* pulled;

  INLINE Slope(const UpdateJob<T>& job, bool decays)
      : scale(static_cast<T>(job.options->maximize ? -job.options->scale : job.options->scale)),
        compensate(static_cast<T>(job.options->compensate)),
        decay(static_cast<T>(decays ? job.options->weight_decay : 0)),
        gradient(job.gradient),
        pulled(job.pulled) {}
  INLINE T operator()(std::size_t i, T weight) const {
    T g = gradient[i] * scale;
    if constexpr (kPulled) g = g + compensate * g * g * (weight - pulled[i]);
    return g + decay * weight;
  }
};

template <class T>
INLINE void give(const UpdateJob<T>& job) {
  if (job.result) __builtin_memcpy(job.result, job.weights, job.count * sizeof(T));
}

template <class T, bool kPulled>
void run_sgd(const UpdateJob<T>& job) {
  const RuleOptions& how = *job.options;
  const Slope<T, kPulled> slope(job, true);
  const T step = static_cast<T>(-how.lr), mu = static_cast<T>(how.momentum);
  const T fresh = static_cast<T>(job.step == 1 ? 1 : 1 - how.dampening);  // a new momentum is the gradient itself
  T* const x = job.weights;
  T* const v = job.first;
  const std::size_t n = job.count;
  if (how.momentum == 0) {
    for (std::size_t i = 0; i < n; ++i) x[i] = x[i] + step * slope(i, x[i]);
  } else if (how.nesterov) {
    for (std::size_t i = 0; i < n; ++i) {
      const T g = slope(i, x[i]);
      v[i] = v[i] * mu + g * fresh;
      x[i] = x[i] + step * (g + v[i] * mu);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = v[i] * mu + slope(i, x[i]) * fresh;
      x[i] = x[i] + step * v[i];
    }
  }
}

INLINE double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

template <class T, bool kPulled>
void run_adam(const UpdateJob<T>& job) {
  const RuleOptions& how = *job.options;
  const Slope<T, kPulled> slope(job, !how.decoupled);
  const T shrink = static_cast<T>(how.decoupled ? 1 - how.lr * how.weight_decay : 1);
  const T one_less = static_cast<T>(1 - how.beta1), b2 = static_cast<T>(how.beta2);
  const T two_less = static_cast<T>(1 - how.beta2), eps = static_cast<T>(how.eps);
  const T size = static_cast<T>(-how.lr / (1 - power(how.beta1, job.step)));
  const T correction = static_cast<T>(__builtin_sqrt(1 - power(how.beta2, job.step)));
  T* const x = job.weights;
  T* const m = job.first;
  T* const v = job.second;
  for (std::size_t i = 0, n = job.count; i < n; ++i) {
    const T g = slope(i, x[i]);
    x[i] = x[i] * shrink;
    m[i] = m[i] + one_less * (g - m[i]);
    v[i] = v[i] * b2 + two_less * g * g;
    x[i] = x[i] + size * m[i] / (root(v[i]) / correction + eps);
  }
}

template <class T, bool kPulled>
void run_adagrad(const UpdateJob<T>& job) {
  const RuleOptions& how = *job.options;
  const Slope<T, kPulled> slope(job, true);
  const T step = static_cast<T>(-how.lr / (1 + static_cast<double>(job.step - 1) * how.lr_decay));
  const T eps = static_cast<T>(how.eps);
  T* const x = job.weights;
  T* const sum = job.first;
  for (std::size_t i = 0, n = job.count; i < n; ++i) {
    const T g = slope(i, x[i]);
    sum[i] = sum[i] + g * g;
    x[i] = x[i] + step * g / (root(sum[i]) + eps);
  }
}

template <class T, bool kPulled>
void run_rmsprop(const UpdateJob<T>& job) {
  const RuleOptions& how = *job.options;
  const Slope<T, kPulled> slope(job, true);
  const T keep = static_cast<T>(how.beta2), fresh = static_cast<T>(1 - how.beta2), eps = static_cast<T>(how.eps);
  const T mu = static_cast<T>(how.momentum), step = static_cast<T>(-how.lr);
  T* const x = job.weights;
  T* const v = job.first;
  T* const buffer = job.second;
  const std::size_t n = job.count;
  if (how.momentum == 0) {
    for (std::size_t i = 0; i < n; ++i) {
      const T g = slope(i, x[i]);
      v[i] = v[i] * keep + fresh * g * g;
      x[i] = x[i] + step * g / (root(v[i]) + eps);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const T g = slope(i, x[i]);
      v[i] = v[i] * keep + fresh * g * g;
      buffer[i] = buffer[i] * mu + g / (root(v[i]) + eps);
      x[i] = x[i] + step * buffer[i];
    }
  }
}

template <class T>
void run_update(const UpdateJob<T>& job) {
  T* const x = job.weights;
  const std::size_t n = job.count;
  switch (job.rule) {
    case Rule::get:
      break;
    case Rule::put:
      __builtin_memcpy(x, job.gradient, n * sizeof(T));
      break;
    case Rule::add: {
      const T by = static_cast<T>(job.options->scale);
      for (std::size_t i = 0; i < n; ++i) x[i] = x[i] + by * job.gradient[i];
      break;
    }
    case Rule::sgd:
      job.pulled ? run_sgd<T, true>(job) : run_sgd<T, false>(job);
      break;
    case Rule::adam:
      job.pulled ? run_adam<T, true>(job) : run_adam<T, false>(job);
      break;
    case Rule::adagrad:
      job.pulled ? run_adagrad<T, true>(job) : run_adagrad<T, false>(job);
      break;
    case Rule::rmsprop:
      job.pulled ? run_rmsprop<T, true>(job) : run_rmsprop<T, false>(job);
      break;
    case Rule::elastic: {
      const T alpha = static_cast<T>(job.options->alpha);
      T* const y = job.result;
      for (std::size_t i = 0; i < n; ++i) {
        const T pull = alpha * (y[i] - x[i]);
        y[i] = y[i] - pull;
        x[i] = x[i] + pull;
      }
      return;
    }
    case Rule::average: {
      T* const y = job.result;
      for (std::size_t i = 0; i < n; ++i) y[i] = x[i] = (x[i] + y[i]) * static_cast<T>(0.5);
      return;
    }
  }
  give(job);
}
