"""The extension module `_core`: the C++ core (csrc) and its Cython binding."""
