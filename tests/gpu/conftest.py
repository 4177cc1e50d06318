"""Fixtures that load the stand-in for the CUDA driver into this process, for its own tests."""

import os
import subprocess

import pytest
from standin.driver import Driver
from standin.processes import folder

KERNELS = """
#include <cstddef>
static const void* (*translate)(const void*);
extern "C" void standin_set_translate(const void* (*f)(const void*)) { translate = f; }
extern "C" size_t add_parameter_sizes(size_t* out) { out[0] = 8; out[1] = 8; out[2] = 4; return 3; }
extern "C" void add_host(void** a, unsigned, unsigned) {
  float* x = (float*)translate(*(void**)a[0]);
  const float* y = (const float*)translate(*(void**)a[1]);
  for (int i = 0; i < *(int*)a[2]; ++i) x[i] += y[i];
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    source = library.with_suffix(".cpp")
    source.write_text(KERNELS)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    os.environ["STANDIN_KERNELS"] = str(library)


@pytest.fixture
def driver(kernels):
    driver = Driver(folder())
    before = driver.leaks()
    yield driver
    driver.fault()
    driver.ignore()
    driver.library.standin_settle()
    driver.cuDevicePrimaryCtxRelease_v2(0)
    before["contexts"] = driver.leaks()["contexts"]
    assert driver.leaks() == before
