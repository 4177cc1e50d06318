"""ringrun and ringcomm.run with real ranks: output, results, and all ways in which a job ends."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from launching import environment, run

import ringcomm
from ringcomm._src.launch.mpi import OPEN_MPI, find

RINGRUN = ["-m", "ringcomm", "run"]

HELLO = """
import os, sys, numpy, ringcomm
ringcomm.init()
print(f"sum {ringcomm.allreduce(numpy.ones(1), op=ringcomm.Sum)[0]} {os.environ.get('GIVEN')}\\n", end="")
print(f"error of {ringcomm.rank()}\\n", end="", file=sys.stderr)
sys.stdout.write("no end")
"""

FAIL = """
import os, sys, time, numpy, ringcomm
how = sys.argv[1]
if how == "early" and "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    import no_such_module
ringcomm.init()
ringcomm.barrier()
if ringcomm.rank() == 1:
    if how == "raise":
        raise ValueError("boom on purpose")
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "exit":
        sys.exit(7)
    if how == "_exit":
        os._exit(9)
while True:
    ringcomm.allreduce(numpy.ones(1), name="x")
    time.sleep(0.05)
"""

SURVIVE = """
import os, sys, time, numpy, ringcomm
ringcomm.init()
x, worst = {"w": numpy.zeros(5000)}, 0.0
with ringcomm.ParameterStore(x, ringcomm.updates.SGD(1.0), on_loss="continue") as store:
    for step in range(60):
        if step == 20 and ringcomm.rank() == 1:
            if sys.argv[1] == "kill":
                os.kill(os.getpid(), 9)
            raise ValueError("enough")
        time.sleep(0.005)
        since = time.monotonic()
        store.push_pull({"w": -numpy.ones(5000)})
        worst = max(worst, time.monotonic() - since)
assert (x["w"] == 140).all() and store.stats()["lost"] == [1] and worst < 5.0, (x, worst)
print("survived\\n", end="")
"""

SLEEP = """
import ringcomm, time
ringcomm.init()
ringcomm.barrier()
print("running", flush=True)
time.sleep(60)
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def nobody_left(path):
    """Waits until no process runs this file."""
    deadline = time.monotonic() + 5
    while True:
        left = [
            command
            for file in Path("/proc").glob("[0-9]*/cmdline")
            if (command := _read(file)) and str(path) in command and "pytest" not in command
        ]
        if not left or time.monotonic() > deadline:
            return not left
        time.sleep(0.1)


def _read(file):
    try:
        return file.read_text().replace("\0", " ")
    except OSError:
        return ""


def test_output_is_tagged_and_written(script, tmp_path):
    path = script(HELLO)
    output = tmp_path / "out"
    done = run(
        [*RINGRUN, "-np", 3, "-x", "GIVEN=word", "--output-filename", output, "--verbose", sys.executable, path],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(
        line for rank in range(3) for line in (f"[{rank}]<stdout>: sum 3.0 word", f"[{rank}]<stdout>: no end")
    )
    errors = [line for line in done.stderr.splitlines() if "]<stderr>: error of" in line]
    assert sorted(errors) == [f"[{rank}]<stderr>: error of {rank}" for rank in range(3)]
    assert find().library in done.stderr and str(Path(sys.executable).parent) in done.stderr
    for rank in range(3):
        assert (output / f"rank.{rank}" / "stdout").read_text() == "sum 3.0 word\nno end"
        assert (output / f"rank.{rank}" / "stderr").read_text() == f"error of {rank}\n"


def test_the_line_that_is_printed_runs(script, tmp_path):
    path = script(HELLO)
    printed = run([*RINGRUN, "-np", 2, "--no-tag-output", "--dry-run", sys.executable, path], tmp_path)
    line = printed.stdout.strip()
    assert printed.returncode == 0 and "launch.rank" not in line
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.count("sum 2.0 None") == 2, done.stderr
    plain = run([*RINGRUN, "-np", 2, "--no-tag-output", sys.executable, path], tmp_path)
    assert plain.returncode == 0 and plain.stdout.count("sum 2.0 None") == 2 and "<stdout>" not in plain.stdout


@pytest.mark.parametrize(
    "how, status, words",
    [
        ("raise", 1, "with ValueError: boom on purpose"),
        ("kill", 137, "with signal 9"),
        ("exit", 7, r"with sys.exit\(7\)"),
        ("_exit", 9, "with exit status 9"),
        ("early", 1, "with exit status 1"),
    ],
)
def test_the_failing_rank_is_named_and_its_traceback_stands_first(script, tmp_path, how, status, words):
    path = script(FAIL)
    done = run([*RINGRUN, "-np", 3, sys.executable, path, how], tmp_path, timeout=60)
    assert done.returncode == status, done.stderr
    _, line, summary = done.stderr.partition("-" * 80 + "\n")
    assert line and re.search(rf"ringrun: rank 1 of 3 on .+ failed first, {words}", summary), done.stderr
    assert "BAD TERMINATION" not in done.stderr and "prterun" not in done.stderr
    if how in ("raise", "early"):
        assert summary.startswith("Traceback (most recent call last):\n")
        assert ("ValueError: boom" if how == "raise" else "No module named 'no_such_module'") in summary
    assert nobody_left(path)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_the_launcher_leaves_no_files(script, tmp_path, how):
    """Open MPI's launcher does not start if an earlier one with its process ID has left files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    show = "import glob, os; print('there', *glob.glob(os.environ['TMPDIR'] + '/ringrun-*/ompi.*'), flush=True)\n"
    variables = {name: value for name, value in environment().items() if "tmpdir_base" not in name}
    command = [sys.executable, *RINGRUN, "-np", "2", sys.executable, script(show + FAIL), how]
    variables["TMPDIR"] = str(folder)
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode and not list(folder.iterdir()), done.stderr
    if find().family == OPEN_MPI:
        assert f"there {folder}/ringrun-" in done.stdout


def test_what_does_not_run_at_all(tmp_path):
    done = run([*RINGRUN, "-np", 2, "./no-such-program"], tmp_path, timeout=60)
    assert done.returncode == 127 and "no-such-program" in done.stderr


def test_ranks_that_do_not_start_in_time(tmp_path):
    """Simulates a launcher that waits, for example for a password."""
    slow = tmp_path / "mpirun"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    begun = time.monotonic()
    done = run([*RINGRUN, "-np", 2, "--mpirun", slow, "--start-timeout", 1, "true"], tmp_path)
    assert done.returncode == 124 and "2 of 2 ranks did not start" in done.stderr
    assert time.monotonic() - begun < 30


def test_a_good_end_is_one_that_every_rank_has_reported(tmp_path):
    """All ranks must report their end: Open MPI 5 exits with 0 if a host's link is lost."""
    launcher = tmp_path / "mpirun"
    said = ["rank 0 started on a", "rank 1 started on b", "rank 0 on a ended with exit status 0"]
    for last, status in (("rank 1 on b ended with exit status 0", 0), ("", 1)):
        launcher.write_text(
            "#!/bin/sh\n" + "".join(f"echo 'ringrun: {words}' >&2\n" for words in (*said, last) if words)
        )
        launcher.chmod(0o755)
        done = run([*RINGRUN, "-np", 2, "--mpirun", launcher, "true"], tmp_path)
        assert done.returncode == status, done.stderr
        assert ("of these ranks: 1 on b." in done.stderr) == bool(status)


def test_slurm_is_used_inside_an_allocation(script, tmp_path, monkeypatch):
    """Replaces srun with a script that starts the ranks by the MPI's own launcher."""
    from ringcomm._src.launch.mpi import launcher

    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/bash\n"
        '[ "$1" = --mpi=list ] && { echo "MPI plugin types are... none pmi2 pmix"; exit; }\n'
        f'echo "$@" > {tmp_path}/arguments\n'
        'while [[ "$1" == --* ]]; do shift; done\n'
        f'exec {launcher(find())} -n 2 "$@"\n'
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    done = run([*RINGRUN, sys.executable, script(HELLO)], tmp_path)
    assert done.returncode == 0 and done.stdout.count("sum 2.0") == 2, done.stderr
    assert "--ntasks=2 --mpi=pmi" in (tmp_path / "arguments").read_text()
    built = run([*RINGRUN, "--check-build"], tmp_path)
    assert re.search(r"\[X\] Slurm: srun --mpi=pmi\w+ \(srun has none, pmi2, pmix\)", built.stdout), built.stdout


@pytest.mark.parametrize("how", ["ctrl-c", "SIGINT", "SIGTERM"])
def test_interrupts_reach_the_ranks(script, how):
    path = script(SLEEP)
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, *RINGRUN, "-np", "2", sys.executable, str(path)], environment())
    text, status, sent = b"", None, 0.0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                text += os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
        if not sent and text.count(b"running") == 2:
            sent = time.monotonic()
            if how == "ctrl-c":
                os.write(terminal, b"\x03")
            else:
                os.kill(child, signal.Signals[how])
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    expected = 128 + (signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)
    assert sent and os.waitstatus_to_exitcode(status) == expected, text.decode()
    assert nobody_left(path)


def test_build_and_subcommand(tmp_path):
    for start in (RINGRUN, ["-m", "ringcomm", "run"]):
        done = run([*start, "--check-build"], tmp_path)
        assert done.returncode == 0 and f"[X] MPI: {find()}" in done.stdout, done.stderr
    assert "ringrun -np" in run(["-m", "ringcomm", "run", "--help"], tmp_path).stdout


def test_the_installed_command(tmp_path):
    command = Path(sys.executable).with_name("ringrun")
    if not command.exists():
        pytest.skip("ringcomm is not installed here")
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == ringcomm.__version__


# ---- ringcomm.run ----------------------------------------------------------------------------------------------------
class OwnError(Exception):
    def __init__(self, word, number):
        super().__init__(word, number)


def summed(value, times=1):
    ringcomm.init()
    print("on a rank")
    return ringcomm.rank(), ringcomm.allreduce(np.full(3, value * times), op=ringcomm.Sum)


def failing(how):
    ringcomm.init()
    ringcomm.barrier()
    if ringcomm.rank() == 1:
        if how == "raise":
            raise OwnError("boom", 3)
        if how == "unpicklable":
            raise OwnError("boom", threading.Lock())
        if how == "exit":
            os._exit(3)
        if how == "result":
            return threading.Lock()
    ringcomm.barrier()
    return None


def test_results_come_in_the_order_of_ranks(capfd):
    results = ringcomm.run(summed, (2,), {"times": 5}, np=3)
    assert [rank for rank, _ in results] == [0, 1, 2]
    assert all(total.tolist() == [30] * 3 for _, total in results)
    assert sorted(capfd.readouterr().out.splitlines()) == [f"[{rank}]<stdout>: on a rank" for rank in range(3)]


@pytest.mark.skipif(shutil.which("true") is None, reason="no such command")
def test_lambdas_need_cloudpickle():
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="cloudpickle"):
            ringcomm.run(lambda: 1)
    else:
        assert ringcomm.run(lambda: 1, num_proc=1) == [1]


def test_exceptions_come_with_their_traceback():
    with pytest.raises(OwnError) as caught:
        ringcomm.run(failing, ["raise"], np=2)
    assert caught.value.args == ("boom", 3)
    assert caught.value.__cause__.rank == 1 and "in failing" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "how, words", [("unpicklable", "OwnError"), ("exit", "exit status 3"), ("result", "cannot be sent")]
)
def test_other_failures(how, words):
    with pytest.raises((RuntimeError, ValueError), match=words):
        ringcomm.run(failing, [how], np=2)


def test_arguments_that_contradict():
    with pytest.raises(ValueError, match="only one of hosts"):
        ringcomm.run(summed, [1], hosts="a:1", hostfile="b")
    with pytest.raises(ValueError, match="not both"):
        ringcomm.run(summed, [1], use_gloo=True, use_mpi=True)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_the_others_survive(how, tmp_path):
    """Skips "kill" under MPICH, whose launcher always ends all ranks if a signal kills one."""
    if how == "kill" and find().family != "Open MPI":
        pytest.skip("MPICH's launcher ends the job")
    script = tmp_path / "survive.py"
    script.write_text(SURVIVE)
    done = run([*RINGRUN, "--survive", "-np", "3", sys.executable, script, how], tmp_path)
    assert done.stdout.count("survived") == 2, done.stdout + done.stderr
    assert "rank 1 of 3" in done.stderr
