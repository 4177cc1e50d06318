"""ringrun without ranks: how it parses its arguments, and the command lines that it builds."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm._src.cli import ringrun
from ringcomm._src.launch import function, lines, run_function, settings
from ringcomm._src.launch.hosts import Host, describe_ranks, is_local, parse_hosts, place, read_hostfile
from ringcomm._src.launch.job import Job, exportable, without_rank_variables
from ringcomm._src.launch.mpi import INTEL, MPICH, OPEN_MPI, Mpi
from ringcomm._src.launch.options import ACCEPTED, make_parser
from ringcomm._src.launch.report import Report
from ringcomm._src.platform import mpi_library

MPIS = {
    "mpich": Mpi(MPICH, "MPICH", (4, 2, 0), "/opt/mpich/lib/libmpi.so"),
    "openmpi4": Mpi(OPEN_MPI, "Open MPI", (4, 1, 6), "/opt/ompi4/lib/libmpi.so"),
    "openmpi5": Mpi(OPEN_MPI, "Open MPI", (5, 0, 3), "/opt/ompi5/lib/libmpi.so"),
    "intel": Mpi(INTEL, "Intel MPI", (2021, 14), "/opt/intel/lib/libmpi.so"),
}


def parse(text):
    return make_parser().parse_args(shlex.split(text))


# ---- hosts -----------------------------------------------------------------------------------------------------------
names = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)
hosts = st.lists(st.tuples(names, st.integers(1, 64)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]).map(
    lambda pairs: [Host(*pair) for pair in pairs]
)


@given(hosts)
def test_hosts_and_hostfiles_say_the_same(tmp_path_factory, named):
    assert parse_hosts(", ".join(f"{name}:{slots}" for name, slots in named)) == named
    assert parse_hosts(",".join(host.name for host in named)) == [Host(host.name, 1) for host in named]
    file = tmp_path_factory.mktemp("hosts") / "hosts"
    for form in ("{} slots={} max_slots=99  # a comment", "{}:{}"):
        file.write_text("# hosts\n\n" + "\n".join(form.format(*host) for host in named) + "\n")
        assert read_hostfile(file) == named


def test_hosts_that_are_named_twice_or_are_addresses():
    assert parse_hosts("a:2,b,a:3") == [Host("a", 5), Host("b", 1)]
    assert parse_hosts("[::1]:2,::1,10.0.0.1:3") == [Host("::1", 3), Host("10.0.0.1", 3)]


@pytest.mark.parametrize("text", ["a:0", "a:x", ":2", "a:-1", "a b", "a:"])
def test_what_is_no_host(text, tmp_path):
    with pytest.raises(ValueError, match=r"host|number of slots"):
        parse_hosts(text)
    (tmp_path / "hosts").write_text("good\n" + text.replace(" ", "=") + "\n")
    with pytest.raises(ValueError, match="line 2"):
        read_hostfile(tmp_path / "hosts")


@given(hosts, st.integers(1, 400))
def test_ranks_fill_hosts_in_order(named, size):
    room = sum(host.slots for host in named)
    if size > room:
        with pytest.raises(ValueError, match=str(room)):
            place(named, size)
        return
    used = place(named, size)
    assert sum(host.slots for host in used) == size
    assert [host.name for host in used] == [host.name for host in named[: len(used)]]
    assert used[:-1] == named[: len(used) - 1] and 0 < used[-1].slots <= named[len(used) - 1].slots


def test_local_names():
    assert is_local("localhost") and is_local("127.0.0.1") and is_local(os.uname().nodename)
    assert not is_local("no-such-host.invalid") and not is_local("192.0.2.1")


# ---- options ---------------------------------------------------------------------------------------------------------
def test_horovods_options_become_variables_of_ours():
    options = parse(
        "-np 4 --fusion-threshold-mb 32 --cache-capacity 7 --timeline-filename t.json --timeline-mark-cycles"
        " --stall-check-warning-time-seconds 9 --stall-check-shutdown-time-seconds 99 --log-level DEBUG"
        " --thread-affinity 0,1 --timeline-last 9"
        " -x A=1 -x B= -x PATH --network-interfaces eth0,eth1 --network-interface eth2 --mpi-threads-disable"
        " python train.py --np 9"
    )
    found = settings.variables(options)
    found.pop("PYTHONUNBUFFERED", None)
    assert options.program == ["python", "train.py", "--np", "9"]
    assert found == {
        "RINGCOMM_FUSION_BYTES": str(32 << 20),
        "RINGCOMM_CACHE_CAPACITY": "7",
        "RINGCOMM_TIMELINE": "t.json",
        "RINGCOMM_TIMELINE_MARK_CYCLES": "1",
        "RINGCOMM_TIMELINE_LAST": "9",
        "RINGCOMM_STALL_WARN_SECONDS": "9",
        "RINGCOMM_STALL_FAIL_SECONDS": "99",
        "RINGCOMM_LOG_LEVEL": "debug",
        "HOROVOD_THREAD_AFFINITY": "0,1",
        "MPI4PY_RC_THREAD_LEVEL": "serialized",
        "A": "1",
        "B": "",
        "PATH": os.environ["PATH"],
    } | dict.fromkeys(settings.INTERFACE_VARIABLES, "eth0,eth1,eth2")
    assert settings.notes(options) == []
    with pytest.raises(ValueError, match="NOT_SET_ANYWHERE"):
        settings.variables(parse("-np 2 -x NOT_SET_ANYWHERE true"))


def test_variables_that_options_set_are_options_of_ours():
    from ringcomm._src.config.config import options

    ours = {variable for option in options() for variable in option["variables"]}
    assert {name for setting in settings.SETTINGS if (name := setting.variable).startswith("RINGCOMM_")} <= ours


@pytest.mark.parametrize("one", ACCEPTED, ids=lambda one: one.name)
def test_options_without_effect_say_so_once(one):
    value = {"int": "3", "float": "0.5", "str": "x", "range": "1 2"}.get(one.kind, "")
    options = parse(f"-np 2 --{one.name} {value} true")
    (note,) = settings.notes(options)
    assert f"--{one.name} " in note and one.why in note
    assert settings.notes(parse(f"-np 2 --no-{one.name} true") if one.kind == "flag" else parse("-np 2 true")) == []


@pytest.mark.parametrize(
    "text",
    [
        "-np 2 -H a:2 -p 22 -i key --disable-cache --gloo true",
        "--num-proc 2 -hostfile f --mpi --tcp --binding-args=--x --mpi-args='--a b' true",
        "-np 2 --host-discovery-script s --min-np 2 --max-np 4 --slots-per-host 2 --blacklist-cooldown-range 1 2 x",
        "-np 2 --no-stall-check --stall-check -prefix-timestamp --log-hide-timestamp --output-filename o true",
        "-cb",
        "-np 2 --torus-allreduce --no-hierarchical-allgather --no-log-hide-timestamp --no-torus-allreduce true",
    ],
)
def test_other_command_lines_of_horovodrun(text):
    parse(text)


@pytest.mark.parametrize("name", ["mpi", "gloo", "jsrun"])
def test_a_controller_is_noted_and_there_is_one(name, capsys):
    (note,) = settings.notes(parse(f"-np 2 --{name} true"))
    assert note.startswith(f"--{name} has no effect")
    with pytest.raises(SystemExit):
        parse("-np 2 --gloo --mpi true")
    assert "not allowed with" in capsys.readouterr().err


def test_long_options_may_be_abbreviated_but_not_the_programs(capsys):
    options = parse(
        "--num-p 3 --fusion=8 --no-tag -H a:3 --timeline-f t.json --blacklist 1 2 python train.py --no --log x"
    )
    assert (options.num_proc, options.fusion_threshold_mb, options.tag_output) == (3, 8, False)
    assert (options.hosts, options.timeline_filename, options.blacklist_cooldown_range) == ("a:3", "t.json", [1, 2])
    assert options.program == ["python", "train.py", "--no", "--log", "x"]
    assert parse("-np 2 --verbose -- --log").program == ["--", "--log"]
    with pytest.raises(SystemExit):
        parse("-np 2 --stall true")
    assert "--stall could match" in capsys.readouterr().err


def test_the_arguments_of_run_stand_where_horovods_do():
    assert " ".join(inspect.signature(run_function.run).parameters) == (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile "
        "host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo "
        "use_mpi mpi_args network_interface network_interfaces executable np min_np max_np"
    )


def test_run_takes_a_script_of_hosts_and_interfaces(monkeypatch):
    seen = []
    monkeypatch.setattr(function, "call_on_ranks", lambda *arguments: seen.append(arguments) or [])
    run_function.run(print, num_proc=3, slots=2, host_discovery_script="echo a:3 b ::1", network_interface="e0,e1")
    run_function.run(print, network_interfaces=["e0", "e1"])
    (*_, size, hosts, options, _), (*_, others, _) = seen
    assert size == 3 and hosts == [Host("a", 3), Host("b", 2), Host("::1", 2)]
    assert parse_hosts(options[options.index("-H") + 1]) == hosts
    assert options[-2:] == others[-2:] == ["--network-interfaces", "e0,e1"]
    script = {"host_discovery_script": "echo a", "slots": 2}
    run_function.run(print, min_np=2, max_np=4, reset_limit=3, cooldown_range=(1, 2), **script)
    *_, size, hosts, options, _ = seen[-1]
    assert size is None and hosts == []
    expected = "-np 2 --host-discovery-script echo a --slots-per-host 2 --min-np 2 --max-np 4 --reset-limit 3"
    assert " ".join(options) == f"{expected} --blacklist-cooldown-range 1 2"
    with pytest.raises(ValueError, match="only one of hosts"):
        run_function.run(print, hosts="a:1", host_discovery_script="echo a")


def test_no_stall_check():
    found = settings.variables(parse("-np 2 --no-stall-check --stall-check-warning-time-seconds 3 true"))
    assert found["RINGCOMM_STALL_WARN_SECONDS"] == found["RINGCOMM_STALL_FAIL_SECONDS"] == "0"


def test_the_command_line_wins_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "options.yaml"
    file.write_text(  # JSON is also YAML
        '{"params": {"fusion_threshold_mb": 8, "cache_capacity": 5, "cycle_time_ms": 3, "torus_allreduce": true},'
        ' "controller": "gloo", "stall_check": {"enabled": false},'
        ' "timeline": {"filename": "t.json", "last": 9}, "autotune": {"enabled": true}}'
    )
    seen = []
    monkeypatch.setattr(ringrun, "run", lambda options: seen.append(options) or 0)
    assert ringrun.main(["-np", "2", "--config-file", str(file), "--fusion-threshold-mb", "9", "true"]) == 0
    (options,) = seen
    assert (options.fusion_threshold_mb, options.cache_capacity, options.timeline_filename) == (9, 5, "t.json")
    assert options.timeline_last == 9
    assert options.no_stall_check and options.autotune and options.cycle_time_ms == 3
    assert options.torus_allreduce and options.controller == "gloo"
    file.write_text('{"params": {"no_such_option": 8}}')
    with pytest.raises(SystemExit):
        ringrun.main(["-np", "2", "--config-file", str(file), "true"])


@pytest.mark.parametrize(
    "text, words",
    [
        ("-np 2", "no command"),
        ("true", "number of ranks"),
        ("-np 4 -H a:1,b:2 true", "room for 3"),
        ("-H a:x true", "'x'"),
    ],
)
def test_what_cannot_be_started_is_said(text, words, capsys, monkeypatch):
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    assert ringrun.main(shlex.split(text)) == 2
    assert words in capsys.readouterr().err


# ---- command lines ---------------------------------------------------------------------------------------------------
def job(**changes):
    return Job(**({"size": 4, "command": ("python", "train.py")} | changes))


def words(mpi, one, environment=None):
    return lines.line(one, MPIS[mpi], "LAUNCHER", environment or {"OMPI_MCA_btl": "^ofi"})


def ordinary(mpi, one, environment=None):
    """Returns the words of the command line that do not depend on this machine and user."""
    found = words(mpi, one, environment).arguments
    skip = {"--allow-run-as-root"}
    found = [word for word in found if word not in skip]
    if "mpi_yield_when_idle" in found:
        at = found.index("mpi_yield_when_idle")
        del found[at - 1 : at + 2]
    return " ".join(found)


TABLE = [
    ("mpich", {}, "LAUNCHER -n 4 -genvall python train.py"),
    ("openmpi4", {}, "LAUNCHER -np 4 --bind-to none --map-by slot --oversubscribe python train.py"),
    ("openmpi5", {}, "LAUNCHER -np 4 --bind-to none --map-by slot:OVERSUBSCRIBE python train.py"),
    ("intel", {}, "LAUNCHER -genvall -n 4 python train.py"),
    ("mpich", {"hosts": "a:2,b:2"}, "LAUNCHER -n 4 -genvall -hosts a:2,b:2 python train.py"),
    (
        "openmpi5",
        {"hosts": "a:2,b:2"},
        "LAUNCHER -np 4 -H a:2,b:2 --bind-to none --map-by slot:OVERSUBSCRIBE python train.py",
    ),
    ("openmpi4", {"hosts": "a:2,b:2"}, "LAUNCHER -np 4 -H a:2,b:2 --bind-to none --map-by slot python train.py"),
    ("intel", {"hosts": "a:2,b:2"}, "LAUNCHER -genvall -hosts a,b -ppn 2 -n 4 python train.py"),
    ("intel", {"hosts": "a:3,b:1"}, "LAUNCHER -genvall -n 3 -host a python train.py : -n 1 -host b python train.py"),
    ("openmpi5", {"binding": ("--rankfile", "r")}, "LAUNCHER -np 4 --rankfile r python train.py"),
    ("mpich", {"extra": ("-print-all-exitcodes",)}, "LAUNCHER -n 4 -genvall -print-all-exitcodes python train.py"),
    ("mpich", {"interfaces": ("eth0", "eth1")}, "LAUNCHER -n 4 -genvall -iface eth0 python train.py"),
    ("intel", {"interfaces": ("eth0",)}, "LAUNCHER -genvall -iface eth0 -n 4 python train.py"),
]


@pytest.mark.parametrize("mpi, changes, expected", TABLE)
def test_lines(mpi, changes, expected):
    changes = dict(changes)
    if "hosts" in changes:
        changes["hosts"] = tuple(parse_hosts(changes["hosts"]))
    assert ordinary(mpi, job(**changes)) == expected


def test_interfaces_tcp_and_ssh():
    ssh = {"ssh_port": 2222, "ssh_identity_file": "key"}
    far = job(hosts=(Host("192.0.2.1", 4),), interfaces=("eth0", "eth1"), tcp=True, **ssh)
    assert "--mca btl_tcp_if_include eth0,eth1 --prtemca prte_if_include eth0,eth1" in ordinary("openmpi5", far)
    assert "--mca oob_tcp_if_include eth0,eth1" in ordinary("openmpi4", far)
    assert "--prtemca plm_ssh_args -p 2222 -i key" in ordinary("openmpi5", far)
    assert "--mca plm_rsh_args -p 2222 -i key" in ordinary("openmpi4", far)
    assert "btl tcp,self,sm" in ordinary("openmpi5", far) and "btl tcp,self,vader" in ordinary("openmpi4", far)
    assert words("mpich", far).variables["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-p 2222 -i key"
    assert words("intel", far).variables["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"] == "-p 2222 -i key"


def test_a_command_in_place_of_ssh():
    one = job(hosts=(Host("192.0.2.1", 4),), ssh_command=("/bin/agent", "-q"), ssh_port=2222)
    assert "-launcher ssh -launcher-exec /bin/agent" in ordinary("mpich", one)
    assert words("mpich", one).variables["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-q -p 2222"
    assert "-bootstrap ssh -bootstrap-exec /bin/agent" in ordinary("intel", one)
    for mpi, kind in {"openmpi5": "--prtemca plm_ssh", "openmpi4": "--mca plm_rsh"}.items():
        assert f"{kind}_args -p 2222" in ordinary(mpi, one)
        assert f"{kind}_agent '/bin/agent -q'" in shlex.join(words(mpi, one).arguments)


def test_what_acts_as_ssh():
    """An elastic job's launchers reach other hosts, and only these, through its agents."""
    ways = {
        "mpich": "-launcher ssh -launcher-exec /shim",
        "intel": "-bootstrap ssh -bootstrap-exec /shim",
        "openmpi4": "--mca plm_rsh_agent /shim --mca plm_rsh_no_tree_spawn 1",
        "openmpi5": "--prtemca plm_ssh_agent /shim --prtemca plm_ssh_no_tree_spawn 1",
    }
    for mpi, expected in ways.items():
        far = job(hosts=(Host("192.0.2.1", 4),), remote_shell="/shim", ssh_port=2222)
        assert expected in ordinary(mpi, far) and "2222" not in ordinary(mpi, far)
        assert not any("SSH" in name or "LAUNCHER_EXTRA" in name for name in words(mpi, far).variables)
        assert "/shim" not in ordinary(mpi, job(remote_shell="/shim"))


def test_open_mpi_hands_variables_to_other_hosts():
    here = {"PATH": "/bin", "HOME": "/h", "SSH_TTY": "x", "PWD": "/", "OMPI_MCA_btl": "1", "SLURM_JOB_ID": "3"}
    far = job(hosts=(Host("192.0.2.1", 4),), variables={"A": "1"})
    found = words("openmpi5", far, here).arguments
    assert [found[at + 1] for at, word in enumerate(found) if word == "-x"] == ["A", "HOME", "PATH"]
    assert "-x" not in words("openmpi5", job(variables={"A": "1"}), here).arguments
    assert exportable(here) == ["HOME", "PATH"]


def test_open_mpi_starts_without_a_second_of_sleep_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(mpi_library, "_PARAMETER_FILES", ())  # this machine's parameter files may set btl

    def btl(one=None, environment=None, mpi=MPIS["openmpi5"]):
        return lines.open_mpi(one or job(), mpi, "LAUNCHER", environment or {}).variables.get("OMPI_MCA_btl")

    assert btl() == btl(environment={"HOME": "/h"}) == "^ofi"
    assert btl(environment={"OMPI_MCA_btl": "tcp,self"}) is None
    assert btl(job(variables={"OMPI_MCA_btl": "sm,self"})) == "sm,self"
    (tmp_path / "etc").mkdir()
    graph_op = MPIS["openmpi5"]._replace(library=str(tmp_path / "lib" / "libmpi.so"))
    (tmp_path / "etc" / "openmpi-mca-params.conf").write_text("# btl = none\nmpi_yield_when_idle = 1\n")
    assert btl(mpi=graph_op) == "^ofi"
    (tmp_path / "etc" / "openmpi-mca-params.conf").write_text("pml = ob1\n btl=tcp,self\n")
    assert btl(mpi=graph_op) is None
    assert lines.srun(job(), MPIS["openmpi5"], "srun", {}).variables == {"OMPI_MCA_btl": "^ofi"}
    assert not lines.srun(job(), MPIS["mpich"], "srun", {}).variables


def test_more_ranks_than_cores():
    cores = len(os.sched_getaffinity(0))
    assert job(size=cores + 1).oversubscribed and not job(size=cores).oversubscribed
    assert not job(size=cores + 1, hosts=(Host("192.0.2.1", cores + 1),)).oversubscribed
    assert "mpi_yield_when_idle" in words("openmpi5", job(size=cores + 1)).arguments


def test_srun():
    def told(one, mpi="mpich", **environment):
        line = lines.srun(one, MPIS[mpi], "srun", environment)
        return " ".join(line.arguments), line

    text, _ = told(job())
    assert text == "srun --ntasks=4 --mpi=pmi2 --kill-on-bad-exit=1 --export=ALL python train.py"
    # elastic jobs run beside the job steps of their agents
    assert "--overlap" in told(job(remote_shell="/tmp/through-agent"))[0]
    assert "--mpi=pmix" in told(job(), "openmpi5")[0]
    assert "--overcommit" in told(job(), SLURM_NTASKS="2")[0] and "--overcommit" not in told(job(), SLURM_NTASKS="4")[0]
    text, line = told(job(hosts=(Host("a", 2), Host("b", 2)), variables={"A": "1"}), SLURM_CPUS_PER_TASK="3")
    assert "--nodes=2 --nodelist=a,b --ntasks-per-node=2" in text
    assert line.variables == {"A": "1", "SRUN_CPUS_PER_TASK": "3"} and line.host_variable is None
    text, line = told(job(hosts=(Host("a", 3), Host("b", 1))))
    assert "--distribution=arbitrary" in text and (line.host_variable, line.hosts) == ("SLURM_HOSTFILE", tuple("aaab"))
    assert str(line).startswith("SLURM_HOSTFILE=<(printf '%s\\n' a a a b) srun ")


def test_a_printed_line_is_one_for_the_shell(monkeypatch):
    monkeypatch.setenv("SECRET", "x y")
    line = words("mpich", job(command=("echo", "a b"), variables={"A": "1 2", "SECRET": "x y"}))
    assert shlex.split(str(line)) == ["A=1 2", *line.arguments]


def test_a_rank_of_another_job_can_start_one():
    rank = ("PMI_RANK", "PMI_FD", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
    other = ("PATH", "PMIX_MCA_gds", "OMPI_MCA_btl", "PRTE_MCA_x", "OMPI_ALLOW_RUN_AS_ROOT")
    inherited, kept = dict.fromkeys(rank, "1"), dict.fromkeys(other, "1")
    assert without_rank_variables(inherited | kept) == kept


# ---- the output of a job ---------------------------------------------------------------------------------------------
def heard(*texts, size=4):
    report = Report(size)
    return report, [text for text in texts if report.add_line(text + "\n")]


def test_the_first_cause_is_found_and_its_traceback_comes_first():
    report, shown = heard(
        "ringrun: rank 2 started on b",
        "[2]<stderr>: Traceback (most recent call last):",
        "[0]<stderr>: Traceback (most recent call last):",
        "[2]<stderr>: KeyError: 1",
        "[2]<stderr>: ",
        "[2]<stderr>: During handling of the above exception, another exception occurred:",
        "[2]<stderr>: ",
        "[2]<stderr>: Traceback (most recent call last):",
        "[2]<stderr>: ValueError: boom",
        "[0]<stderr>: ringcomm: rank 0 of 4 (a): PeerLostError: rank 2 has died; ending the job",
        "[2]<stderr>: ringcomm: rank 2 of 4 (b): ValueError: boom; ending the job",
        "ringrun: rank 2 on b ended with exit status 1",
        "= BAD TERMINATION",
    )
    assert report.hosts == {2: "b"} and len(shown) == 10
    assert report.first.rank == 2 and report.first.how == "ValueError: boom"
    assert report.launcher_lines == ["= BAD TERMINATION\n"]
    summary = report.summary()
    assert summary[0].startswith("Traceback") and summary[1] == "KeyError: 1" and summary[-2] == "ValueError: boom"
    assert summary[-1] == "ringrun: rank 2 of 4 on b failed first, with ValueError: boom; then rank 0"


@pytest.mark.parametrize(
    "how, status", [("exit status 7", 7), ("signal 9 (SIGKILL)", 137), ("sys.exit(3)", 3), ("ValueError: boom", None)]
)
def test_the_status_of_a_failure(how, status):
    report, _ = heard(f"ringrun: rank 1 on a ended with {how}")
    assert report.first.status == status


def test_a_program_cannot_speak_for_the_launcher():
    report, shown = heard(
        "[0]<stdout>: ringrun: rank 1 on a ended with exit status 1",
        "[0]<stderr>: ringcomm: rank 1 of 4 (a): ValueError: x; ending the job",
        "2024-01-01 10:00:00 [1]<stderr>: text",
        "a warning of the launcher's",
    )
    assert report.first is None and len(shown) == 4 and report.last_output(1) == ["text"]


# ---- messages to the user --------------------------------------------------------------------------------------------
def test_a_script_without_python(tmp_path):
    for program, fix in (("train.py --lr 0.1", "write python train.py --lr 0.1"), ("./x.py", "write python ./x.py")):
        with pytest.raises(ValueError, match=fix):
            ringrun.make_job(parse(f"-np 2 {program}"), 2, [], [])
    script = tmp_path / "train.py"
    script.write_text("#!/usr/bin/env python")
    script.chmod(0o755)
    assert ringrun.make_job(parse(f"-np 2 {script}"), 2, [], []).command == (str(script),)


@given(hosts, st.data())
def test_ranks_that_never_started_are_told_with_their_hosts(named, data):
    where = [host.name for host in named for _ in range(host.slots)]
    missing = data.draw(st.sets(st.integers(0, len(where) - 1), min_size=1))
    known = data.draw(st.sets(st.sampled_from(where)))
    told = {}
    with mock.patch("ringcomm._src.launch.hosts._has_address", known.__contains__):
        for part in describe_ranks(missing, named).split("; "):
            ranks, host, name = re.fullmatch(r"ranks? ([\d, ]+) on ([^,]+)(, a name .+)?", part).groups()
            told |= dict.fromkeys(map(int, ranks.split(", ")), host)
            assert (name is None) == (host in known)
    assert told == {rank: where[rank] for rank in missing}


def test_names_that_have_no_address():
    for name in ("a..b", "x" * 70):
        assert describe_ranks([0], [Host(name, 1)]) == f"rank 0 on {name}, a name without a known address"
        assert not is_local(name)
    assert describe_ranks([0, 1], [Host("localhost", 2)]) == "ranks 0, 1 on localhost"
    assert describe_ranks([0], []) == "rank 0"


def test_a_folder_that_hides_the_package(tmp_path):
    package = tmp_path / "ringcomm"
    shutil.copytree(Path(ringcomm.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    asked = subprocess.run([sys.executable, "-c", "import ringcomm"], cwd=tmp_path, capture_output=True, text=True)
    assert f"{package}, which hides an installed package" in asked.stderr.splitlines()[-1]
