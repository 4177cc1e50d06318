"""DataLoader workers of every start method, during allreduces; errors of calls in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402

import ringcomm.torch as hvd  # noqa: E402

SAMPLES, WORKERS, EPOCHS = 64, 2, 2
METHODS = ("fork", "forkserver", "spawn")
FAST = ("fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("forkserver", "spawn")))
OF_ITS_OWN = ("forkserver",)  # these have a server that lives as long as its rank
PATHS = {"PYTHONPATH": str(HERE)}


class Squares(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.full((1000,), float(index)) ** 2


class CallsIn(Dataset):
    """A data set whose samples are errors of ringcomm's calls in a worker: all refused."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        calls = (
            lambda: hvd.allreduce(torch.ones(1), name=f"worker {index}"),
            lambda: hvd.broadcast_object(1),
            hvd.init,
            hvd.rank,
        )
        try:
            calls[index]()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "accepted"


def under_load(method):
    """Runs small and large operations, fused and not, while workers start, work and end."""
    hvd.init()
    size = hvd.size()
    large, small = torch.ones(1 << 20), [torch.ones(100 + i) for i in range(5)]

    def submit(step):
        handles = [hvd.allreduce_async(large, name=f"large.{step}", op=hvd.Sum)]
        return handles + [hvd.allreduce_async(x, name=f"small.{step}.{i}", op=hvd.Sum) for i, x in enumerate(small)]

    step = 0
    for epoch in range(EPOCHS):
        flying = submit(step)
        loader = DataLoader(Squares(), batch_size=4, num_workers=WORKERS, multiprocessing_context=method)
        for number, batch in enumerate(loader):
            assert batch[:, 0].tolist() == [float(i) ** 2 for i in range(4 * number, 4 * number + 4)]
            for handle in flying:
                assert (hvd.synchronize(handle) == size).all()
            step += 1
            flying = submit(step)
        for handle in flying:
            hvd.synchronize(handle)
        step += 1
        assert hvd.allreduce(torch.ones(1), name=f"epoch {epoch}", op=hvd.Sum).item() == size
    hvd.shutdown()


@pytest.mark.parametrize("method", FAST)
def test_workers_under_load(method):
    result = mpi_case.run(2, under_load, method, variables=PATHS, alone=method in OF_ITS_OWN)
    assert "Error" not in result.text, result.text


def called_in(method):
    hvd.init()
    loader = DataLoader(CallsIn(), batch_size=None, num_workers=1, multiprocessing_context=method)
    for text in loader:
        mpi_case.say("told", text)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


@pytest.mark.parametrize("method", FAST)
def test_a_worker_that_calls_in_is_told(method):
    result = mpi_case.run(2, called_in, method, variables=PATHS, alone=method in OF_ITS_OWN)
    told = result.lines("told")
    assert len(told) == 8 and not any("accepted" in line for line in told), result.text
    if method == "fork":
        assert all("forked child" in line and "RingcommError" in line for line in told), told
    else:
        assert sum("NotInitializedError" in line for line in told) == 6, told
        assert sum("RingcommError" in line and "child of a rank" in line for line in told) == 2, told


SCRIPT_WITHOUT_GUARD = """
import multiprocessing
import ringcomm

ringcomm.init()
for method in ("spawn", "forkserver"):
    child = multiprocessing.get_context(method).Process(target=int)
    child.start()
    child.join()
    print("child", child.exitcode, flush=True)
ringcomm.barrier()
"""


def test_script_without_main_guard(tmp_path):
    """A child imports the script, whose init() raises one error there; ranks continue."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT_WITHOUT_GUARD)
    result = mpi_case.run(2, mpi_case.run_python, [str(script)], str(tmp_path), limit=60, alone=True)
    assert len(result.lines("child 1")) == 4
    errors = result.lines("ringcomm.errors.RingcommError: ")
    assert len(errors) == 4 and all("__main__" in line for line in errors)
