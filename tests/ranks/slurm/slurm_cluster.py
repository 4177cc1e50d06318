"""A Slurm cluster on this machine: controller and nodes in namespaces, for tests as root.

Each node has a private network, host name, process ids and /dev/shm, so that Slurm, MPI and
ringcomm treat it as a host. Nothing in /etc is read or written. Ending the controller's first
process ends every process of the cluster.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

NETWORK = "10.79.0"
NEEDED = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare", "nsenter", "ip")
STARTING = 60.0  # seconds
NAMESPACES = "--net --uts --ipc --mount --pid"

CONFIGURATION = """
ClusterName=ringcomm
SlurmctldHost=ctl({network}.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket
CredType=cred/munge
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool.%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd.%n.pid
SlurmctldLogFile={run}/slurmctld.log
SlurmdLogFile={run}/slurmd.%n.log
SlurmdParameters=config_overrides
MpiDefault=none
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=10
KillWait=3
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# TCP uses CUBIC or Reno, because BBR without the fq queue sometimes delays data by 40 ms.
HOST = """
set -e; hostname {host}
cd /proc/sys/net/ipv4
{{ echo cubic > tcp_congestion_control || echo reno > tcp_congestion_control; }} 2> /dev/null || true
cd /
mount -t tmpfs -o size=256m tmpfs /dev/shm; ip link set lo up
"""

CONTROLLER = """
mount --bind {run}/hosts /etc/hosts
ip link add br0 type bridge; ip address add {network}.254/24 dev br0; ip link set br0 up
munged --foreground --force --key-file {run}/munge.key --socket {run}/munge.socket --pid-file {run}/munged.pid \
  --log-file {run}/munged.log --seed-file {run}/munged.seed > {run}/munged.out 2>&1 &
until [ -S {run}/munge.socket ]; do sleep 0.05; done
slurmctld -D -c -f {run}/slurm.conf > {run}/slurmctld.out 2>&1 &
for i in {numbers}; do
  unshare {namespaces} --fork --kill-child --mount-proc bash {run}/node.$i > {run}/node.$i.out 2>&1 &
  holder=$!; echo $holder > {run}/holder.$i
  until first=$(cat /proc/$holder/task/$holder/children) && [ -n "$first" ]; do sleep 0.05; done
  until ip link add p$i type veth peer name eth0 netns ${{first%% *}} 2> /dev/null; do sleep 0.05; done
  ip link set p$i master br0 up
done
while :; do sleep 3600 & wait $!; done
"""

NODE = """
until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip address add {network}.{number}/24 dev eth0; ip link set eth0 up
slurmd -D -N {host} -f {run}/slurm.conf & wait $!
"""


def missing() -> str:
    """Returns why no cluster can run here; empty if one can."""
    commands = ", ".join(name for name in NEEDED if shutil.which(name) is None)
    if os.geteuid() != 0:
        return "a Slurm cluster in namespaces needs root"
    return f"needs {commands} (Debian: slurmctld slurmd slurm-client munge iproute2)" if commands else ""


class Cluster:
    """A cluster, which its constructor starts.

    `folder`: a private folder with a short path, for sockets. `tracking`: how slurmd finds the
    processes of a job, `linuxproc` (by parents) or `cgroup`.
    """

    def __init__(self, folder: Path, nodes: int, cpus: int = 2, tracking: str = "linuxproc") -> None:
        self.folder, numbers = folder, range(1, nodes + 1)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o600)
        (folder / "mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")
        names = "".join(f"{NETWORK}.{i} n{i}\n" for i in numbers)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{NETWORK}.254 ctl\n{names}")
        lines = [f"NodeName=n{i} NodeAddr={NETWORK}.{i} CPUs={cpus} RealMemory=4000 State=UNKNOWN" for i in numbers]
        self._write("slurm.conf", CONFIGURATION, nodes="\n".join(lines), tracking=tracking)
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        for i in numbers:
            (folder / f"spool.n{i}").mkdir()
            self._write(f"node.{i}", HOST + NODE, host=f"n{i}", number=i)
        self._write("controller", HOST + CONTROLLER, host="ctl", numbers=" ".join(map(str, numbers)))
        command = f"unshare {NAMESPACES} --fork --kill-child --mount-proc bash {folder}/controller"
        with (folder / "controller.out").open("wb") as output:
            self._outer = subprocess.Popen(
                command.split(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + STARTING
        while self._idle() < nodes:
            if time.monotonic() > deadline:
                logs = "\n".join(file.read_text(errors="replace")[-2000:] for file in sorted(folder.glob("*.out")))
                self.close()
                raise AssertionError(f"the nodes did not start within {STARTING:g} s\n{logs}")
            time.sleep(0.1)

    def _write(self, name: str, text: str, **words: object) -> None:
        values = {"run": self.folder, "network": NETWORK, "namespaces": NAMESPACES} | words
        (self.folder / name).write_text(text.format(**values))

    def _idle(self) -> int:
        try:
            return len(self.run(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]).stdout.split())
        except (IndexError, OSError):  # its first process does not exist yet
            return 0

    def run(
        self, command: Sequence[str | Path], variables: Mapping[str, str] | None = None, limit: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the controller. Its output includes standard error.

        After `limit` seconds the call fails, and all jobs are cancelled.
        """
        first = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()[0]
        entering = ["nsenter", "--target", first, *NAMESPACES.split(), "--", "env", "-C", str(self.folder)]
        there = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf", **(variables or {})}
        with subprocess.Popen(
            [*entering, *map(str, command)],
            env=there,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                text, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                subprocess.run([*entering, "scancel", "--user=root"], env=there)
                process.kill()
                raise AssertionError(f"did not end within {limit:g} s: {shlex.join(map(str, command))}") from None
        return subprocess.CompletedProcess(command, process.returncode, text)

    def lose(self, number: int) -> None:
        """Kills a node, as a power failure does."""
        self.run(["bash", "-c", f"kill -9 $(cat {self.folder}/holder.{number})"])

    def close(self) -> None:
        """Ends every process of the cluster."""
        os.kill(self._outer.pid, signal.SIGKILL)
        self._outer.wait()
