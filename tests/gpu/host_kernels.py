"""The kernels from Python: parameters as ctypes structures, and launches on host or GPU."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import on_gpu

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "kernels"))
POINTERS, TENSORS, DIMENSIONS = 64, 128, 40


class Scaling(ctypes.Structure):
    _fields_ = (
        ("factor", ctypes.c_double),
        ("divisor", ctypes.c_longlong),
        ("mode", ctypes.c_uint),
        ("unused", ctypes.c_uint),
    )


class ReduceParameters(ctypes.Structure):
    _fields_ = (
        ("sources", ctypes.c_void_p * POINTERS),
        ("destinations", ctypes.c_void_p * POINTERS),
        ("first", ctypes.c_ulonglong),
        ("count", ctypes.c_ulonglong),
        ("pre", Scaling),
        ("post", Scaling),
        ("source_count", ctypes.c_uint),
        ("destination_count", ctypes.c_uint),
    )


class PackParameters(ctypes.Structure):
    _fields_ = (
        ("sources", ctypes.c_void_p * TENSORS),
        ("destinations", ctypes.c_void_p * TENSORS),
        ("counts", ctypes.c_ulonglong * TENSORS),
        ("first_chunk", ctypes.c_uint * (TENSORS + 1)),
        ("tensor_count", ctypes.c_uint),
        ("chunk", ctypes.c_ulonglong),
        ("scaling", Scaling),
    )


class FillParameters(ctypes.Structure):
    _fields_ = (
        ("destination", ctypes.c_void_p),
        ("nbytes", ctypes.c_ulonglong),
        ("pattern", ctypes.c_ubyte * 16),
    )


class StridedParameters(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_void_p),
        ("destination", ctypes.c_void_p),
        ("count", ctypes.c_ulonglong),
        ("shape", ctypes.c_ulonglong * DIMENSIONS),
        ("source_strides", ctypes.c_longlong * DIMENSIONS),
        ("destination_strides", ctypes.c_longlong * DIMENSIONS),
        ("dimensions", ctypes.c_uint),
        ("unit", ctypes.c_uint),
    )


class Tensor(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_void_p),
        ("destination", ctypes.c_void_p),
        ("count", ctypes.c_ulonglong),
    )


def load_module(path: Path) -> Any:
    """Loads a script that is not in a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def library(form: str = "c++") -> ctypes.CDLL:
    """Returns the library made from the sources as C++, or from the package's PTX ("ptx")."""
    build = load_module(HERE / "kernels" / "build.py")
    return ctypes.CDLL(str(build.build_from_ptx() if form == "ptx" else build.build()))


def entry(which: str, *numbers: int) -> tuple[str, str, int]:
    """Returns a kernel's name, its module, and the parts of an element.

    `which` and `numbers`: reduce (dtype, op), pack (from, to) or scale (dtype).
    """
    name, module = ctypes.create_string_buffer(64), ctypes.create_string_buffer(32)
    parts = getattr(library(), f"test_{which}_entry")(*numbers, name, module)
    return name.value.decode(), module.value.decode(), parts


def scaling_of(dtype: int, factor: float, divisor: int) -> Scaling:
    result = Scaling()
    library().test_scaling(dtype, ctypes.c_double(factor), ctypes.c_longlong(divisor), ctypes.byref(result))
    return result


def launch(name: str, parameters: ctypes.Structure, blocks: int, threads: int, form: str = "c++") -> None:
    if form == "gpu":
        on_gpu.the_gpu().launch(name, parameters, blocks, threads)
        return
    sizes = ctypes.c_size_t()
    assert getattr(library(form), f"{name}_parameter_sizes")(ctypes.byref(sizes)) == 1
    assert sizes.value == ctypes.sizeof(parameters)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
    getattr(library(form), f"{name}_host")(arguments, blocks, threads)
