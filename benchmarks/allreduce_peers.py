"""Compares all-reduce on one host with other libraries, each at its best settings.

    python benchmarks/allreduce_peers.py --python .venv/bin/python --python .venv-openmpi/bin/python --json peers.json

Each setting of an MPI (SETTINGS) is a separate job. In a job, pinned ranks time these in turns, as
host_allreduce.py does:

    mpi, mpi in place     MPI_Allreduce with the settings
    ordinary, in place    Communicator.allreduce of ordinary arrays
    gloo                  torch.distributed.all_reduce with Gloo, in place, if torch is installed
    deepspeed             DeepSpeed's all-reduce in shared memory, in place, if it is installed (x86-64)
    oneccl                oneCCL's allreduce, in place, if oneccl-devel is installed

The last three compile or load their library at the start. MPI has no bfloat16.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import jobs
import measure
from cluster import mpi_kind
from host_allreduce import Contestant, calls_in_a_timing, timing

from ringcomm._src.cli.bench_cases import Case
from ringcomm._src.cli.measured import now, take_turns
from ringcomm._src.cli.sizes import human_size

DTYPES = ("float32", "bfloat16")
SETTINGS: dict[str, dict[str, dict[str, str]]] = {  # by kind of MPI: environments
    "mpich": {
        "as installed": {},
        "release_gather": {
            "MPIR_CVAR_ALLREDUCE_COMPOSITION": "3",  # one level: the host's
            "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather",
            "MPIR_CVAR_COLL_SHM_LIMIT_PER_NODE": "1048576",
        },
    },
    "openmpi": {
        "as installed": {},
        "han": {"OMPI_MCA_coll_han_priority": "100"},
        "adapt": {"OMPI_MCA_coll_adapt_priority": "100"},
        "sm": {"OMPI_MCA_coll_sm_priority": "100"},
    },
    "intel": {"as installed": {}, "shared memory only": {"I_MPI_FABRICS": "shm"}},
}


# ---- libraries -------------------------------------------------------------------------------------------------------
def gloo(world: Any) -> Any:
    from peers import start_gloo

    start_gloo(world)
    import torch.distributed as dist

    return lambda tensor: partial(dist.all_reduce, tensor)


def deepspeed(world: Any) -> Any:
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin
    sources = Path(spec.origin).parent / "ops" / "csrc" / "cpu"
    os.environ.update(LOCAL_SIZE=str(world.size), MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(world.bcast(os.getpid()))  # a part of the names of its files
    files = [sources / "comm" / name for name in ("shm_interface.cpp", "shm.cpp")]
    library = compiled(world, "deepspeed_shm", files, [sources / "includes"], ["-O2", "-fopenmp"], [])
    library.initialize(world.size, world.rank)
    import torch

    return lambda tensor: partial(torch.ops.deepspeed.inference_all_reduce_, tensor)


ONECCL = """
#include <oneapi/ccl.hpp>
#include <torch/extension.h>
static std::unique_ptr<ccl::communicator> comm;
static ccl::shared_ptr_class<ccl::kvs> kvs;
py::bytes address() {
  ccl::init();
  kvs = ccl::create_main_kvs();
  const auto a = kvs->get_address();
  return py::bytes(a.data(), a.size());
}
void start(int size, int rank, const std::string& at) {
  ccl::init();
  if (!kvs) {
    ccl::kvs::address_type a;
    std::copy(at.begin(), at.end(), a.begin());
    kvs = ccl::create_kvs(a);
  }
  comm = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, kvs));
}
void all_reduce(torch::Tensor t) {
  const auto kind = t.scalar_type() == torch::kFloat ? ccl::datatype::float32 : ccl::datatype::bfloat16;
  ccl::allreduce(t.data_ptr(), t.data_ptr(), t.numel(), kind, ccl::reduction::sum, *comm).wait();
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("address", &address);
  m.def("start", &start);
  m.def("all_reduce", &all_reduce, py::call_guard<py::gil_scoped_release>());
}
"""


def oneccl(world: Any) -> Any:
    file = Path(tempfile.gettempdir(), "ringcomm_oneccl.cpp")
    if world.rank == 0:
        file.write_text(ONECCL)
    root = Path(sys.prefix)
    flags = [f"-L{root / 'lib'}", "-lccl", f"-Wl,-rpath,{root / 'lib'}"]
    os.environ.setdefault("CCL_ATL_TRANSPORT", "ofi")
    library = compiled(world, "ringcomm_oneccl", [file], [root / "include"], ["-O2"], flags)
    at = world.bcast(library.address() if world.rank == 0 else None)
    library.start(world.size, world.rank, at)
    return lambda tensor: partial(library.all_reduce, tensor)


def compiled(world: Any, name: str, files: list[Path], includes: list[Path], flags: list[str], link: list[str]) -> Any:
    """Returns a compiled extension of torch; rank 0 compiles it."""
    from torch.utils.cpp_extension import load

    def make() -> Any:
        paths = {"sources": list(map(str, files)), "extra_include_paths": list(map(str, includes))}
        return load(name, **paths, extra_cflags=flags, extra_ldflags=link)

    library = make() if world.rank == 0 else None
    world.Barrier()
    return library or make()


LIBRARIES = {"gloo": (gloo, "torch"), "deepspeed": (deepspeed, "deepspeed"), "oneccl": (oneccl, None)}


def installed(name: str) -> bool:
    module = LIBRARIES[name][1]
    if module is None:
        return Path(sys.prefix, "include", "oneapi", "ccl.hpp").exists()
    return importlib.util.find_spec(module) is not None


# ---- on the ranks ----------------------------------------------------------------------------------------------------
def tensor_of(case: Case) -> Any:
    import torch

    if case.dtype_name == "bfloat16":
        return torch.from_numpy(case.output.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(case.output)


def contestants(world: Any, comm: Any, nbytes: int, dtype: str, libraries: dict[str, Any]) -> dict[str, Contestant]:
    templates: dict[bytes, Any] = {}

    def case(in_place: bool) -> Case:
        made = Case("allreduce", comm, world, dtype, "sum", 0, nbytes, in_place)
        made.templates = templates
        return made

    found = {}
    for name, in_place in (("ordinary", False), ("in place", True)):
        one = case(in_place)
        found[name] = Contestant(one.ringcomm_call(None), one)
        peer = case(in_place)
        call = peer.mpi_call() if dtype == "float32" else None
        if call is not None:
            found["mpi in place" if in_place else "mpi"] = Contestant(call, peer)
    for name, prepare in libraries.items():
        one = case(True)
        found[name] = Contestant(prepare(tensor_of(one)), one)
    return found


def worker(task: dict[str, Any]) -> None:
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    measure.pin(world.rank)
    libraries = {name: LIBRARIES[name][0](world) for name in task["libraries"]}
    comm = ringcomm.Communicator(world)
    rows = []
    for dtype in DTYPES if libraries else DTYPES[:1]:
        for nbytes in task["sizes"]:
            calls = calls_in_a_timing(nbytes)
            given = contestants(world, comm, nbytes, dtype, libraries)
            chosen = {name: partial(timing, one, name, calls) for name, one in given.items()}
            seconds = take_turns(world, chosen, task["repeat"], nbytes, uncounted=1)
            rows.append({"nbytes": nbytes, "dtype": dtype, "seconds": seconds})
            if world.rank == 0:
                print(line(rows[-1]), flush=True)
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "rows": rows})
    comm.close()


# ---- outside the ranks -----------------------------------------------------------------------------------------------
OUT_OF_PLACE = ("mpi",)  # compared with "ordinary", the others with "in place"


def ours(peer: str) -> str:
    return "ordinary" if peer in OUT_OF_PLACE else "in place"


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    cells = [f"{row['dtype']:8} {human_size(row['nbytes']):>6}"]
    for peer in (name for name in seconds if name not in ("ordinary", "in place")):
        middle, low, high = measure.ratio(seconds[peer], seconds[ours(peer)])
        cells.append(f"{peer} {statistics.median(seconds[peer]) * 1e6:.1f} us: {middle:.2f} [{low:.2f}, {high:.2f}]")
    return "  ".join(cells)


def main() -> None:
    parser = jobs.make_parser(__doc__, "8,4K,64K,1M,16M")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (default 2,4)")
    parser.add_argument("--repeat", type=int, default=21)
    parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=None, help="default: those installed")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    for python in jobs.pythons(options):
        kind = mpi_kind(jobs.launcher_of(python))
        for setting, environment in SETTINGS[kind].items():
            os.environ.update(environment)
            for ranks in map(int, options.ranks.split(",")):
                print(f"# {kind}, {setting}, {ranks} ranks: time of a call, × ours [95 %]", flush=True)
                task = {"sizes": options.sizes, "repeat": options.repeat, "libraries": options.libraries or []}
                result = jobs.on_this_host(python, __file__, ranks, task)
                described = {"kind": kind, "setting": setting, "ranks": ranks, "date": now(), **result}
                if options.json:
                    measure.write_merged(options.json, [described], ("kind", "setting", "ranks"))
            for name in environment:
                del os.environ[name]


if __name__ == "__main__":
    main()
