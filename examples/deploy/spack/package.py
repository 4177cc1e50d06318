"""A Spack package. Copy it to `packages/py_ringcomm/` of your Spack repository.

Then run `spack install py-ringcomm ^mpich`.
"""
# ruff: noqa: F403, F405

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyRingcomm(PythonPackage):
    """MPI-based collectives for distributed training: all-reduce for NumPy, PyTorch and more."""

    pypi = "ringcomm/ringcomm-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0", sha256="0" * 64)  # replace it by that of the released source archive

    variant("torch", default=False, description="Install the packages that ringcomm.torch needs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.11:", type="build")
    depends_on("py-cython@3.1:3", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
    depends_on("py-numpy@1.23:", type="run")
    depends_on("py-mpi4py@4:", type="run")
    depends_on("mpi", type="run")
    depends_on("py-torch@2.1:", type="run", when="+torch")
    depends_on("py-cloudpickle@2:", type="run", when="+torch")

    conflicts("%gcc@:10", msg="ringcomm is written in C++20")
