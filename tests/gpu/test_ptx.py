"""Tests that the package's PTX is current, and has every kernel that the host launches."""

from __future__ import annotations

import re
from pathlib import Path

import host_kernels as gpu
import pytest

from ringcomm._src.core import _core

HERE = Path(__file__).resolve().parent
build_ptx = gpu.load_module(HERE.parents[1] / "csrc" / "device" / "kernels" / "build_ptx.py")


@pytest.mark.parametrize("module", build_ptx.MODULES)
def test_ptx_is_of_the_present_sources(module):
    assert build_ptx.read(module).startswith(build_ptx.heading()), "make it anew: csrc/device/kernels/build_ptx.py"


def test_the_hash_is_of_all_sources():
    included = {"cuda_form.cu"}
    for name in build_ptx.DEVICE_SOURCES:
        text = (build_ptx.HERE / name).read_text()
        included |= set(re.findall(r'#include "device/kernels/([^"]+)"', text))
    assert included == set(build_ptx.DEVICE_SOURCES)


def test_modules_hold_what_the_host_asks_for():
    dtypes, ops = range(len(_core.DTYPES)), range(len(_core.OPS))
    asked = [gpu.entry("reduce", d, o) for d in dtypes for o in ops if _core.reduces(d, o)]
    asked += [gpu.entry("pack", d, d) for d in dtypes] + [gpu.entry("pack", d, to) for d in range(4) for to in range(4)]
    asked += [gpu.entry("scale", d) for d in dtypes] + [("rc_fill", "fill", 1), ("rc_strided", "strided", 1)]
    held = {m: set(re.findall(r"\.entry (\w+)", build_ptx.read(m))) for m in build_ptx.MODULES}
    assert all(name in held[module] for name, module, _ in asked)
    # It contains no other kernel, because a driver takes time to load each.
    assert set().union(*held.values()) == {name for name, _, _ in asked}


@pytest.mark.parametrize("module", build_ptx.MODULES)
def test_arithmetic_is_rounded_operation_by_operation(module):
    """Checks that NVRTC and drivers add no fused multiply-adds, approximations or flushes."""
    text = build_ptx.read(module)
    floating = set(re.findall(r"\b((?:fma|mad|add|sub|mul|div|rcp|sqrt|cvt)\.\S*f(?:16|32|64)\S*)", text))
    assert not [one for one in floating if re.search(r"fma|mad|rcp|approx|full|ftz", one)]
    assert all(".rn" in one for one in floating if re.match(r"(add|sub|mul|div)\.", one))
