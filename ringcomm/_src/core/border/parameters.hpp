// Sorts the arguments of a communicator's method by their parameters (_cached_method.pxi).
#pragma once

#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace ringcomm_border {

// The arguments that a call from the cache may have. Borrowed; null: not given.
struct Arguments {
  PyObject* x = nullptr;
  PyObject* out = nullptr;
  PyObject* root = nullptr;
  PyObject* op = nullptr;
  PyObject* prescale_factor = nullptr;
  PyObject* postscale_factor = nullptr;
  PyObject* wire = nullptr;
  PyObject* rows = nullptr;
};

// The parameters of a method after self, in order.
class Parameters {
 public:
  // `name` is interned. Both objects outlive this one.
  void add(PyObject* name, std::string_view text, PyObject* by_default) {
    static constexpr std::pair<std::string_view, Place> kPlaces[] = {
        {"x", &Arguments::x},
        {"out", &Arguments::out},
        {"root", &Arguments::root},
        {"op", &Arguments::op},
        {"prescale_factor", &Arguments::prescale_factor},
        {"postscale_factor", &Arguments::postscale_factor},
        {"wire", &Arguments::wire},
        {"rows", &Arguments::rows},
    };
    Place place = nullptr;
    for (const auto& [known_text, known_place] : kPlaces)
      if (known_text == text) place = known_place;
    all_.push_back({name, place, by_default});
  }
  // Sorts the arguments of a vectorcall after self. Returns false if a call with them is never
  // cached, or if they do not fit the parameters.
  bool sort(PyObject* const* given, std::size_t positional, PyObject* keywords, Arguments& sorted) const {
    if (positional > all_.size()) return false;
    for (std::size_t i = 0; i < positional; ++i)
      if (!store(all_[i], given[i], sorted)) return false;
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < named; ++i) {  // compares addresses, as names in calls are interned
      PyObject* const name = PyTuple_GET_ITEM(keywords, i);
      const auto first = all_.begin() + static_cast<std::ptrdiff_t>(positional);  // the others are given already
      const auto known = std::find_if(first, all_.end(), [&](const Parameter& p) { return p.name == name; });
      if (known == all_.end() || !store(*known, given[positional + static_cast<std::size_t>(i)], sorted)) return false;
    }
    return true;
  }

 private:
  using Place = PyObject* Arguments::*;
  struct Parameter {
    PyObject* name;
    Place place;  // null: a call is cached only with the default
    PyObject* by_default;
  };
  static bool store(const Parameter& parameter, PyObject* value, Arguments& sorted) {
    if (parameter.place == nullptr) return value == parameter.by_default;
    sorted.*parameter.place = value;
    return true;
  }
  std::vector<Parameter> all_;
};

// Lets CPython call instances of a type through the vectorcallfunc at `offset`: a method call then
// makes no bound method and no tuple.
inline void use_vectorcall(PyTypeObject* type, Py_ssize_t offset) {
  type->tp_vectorcall_offset = offset;
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Modified(type);
}
}  // namespace ringcomm_border
