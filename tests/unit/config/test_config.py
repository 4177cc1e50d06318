"""Options: read from the environment, with Horovod's names as aliases, and made equal on all ranks."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm import threads
from ringcomm._src.base import affinity
from ringcomm._src.config import horovod_options
from ringcomm._src.config.config import Config, options, parse_size
from ringcomm._src.config.option_values import replica_check


def test_every_option_is_documented_and_readable():
    samples = {
        "shared_memory": "off",
        "bind": "off",
        "survive": "on",
        "check": "off",
        "check_launcher": "off",
        "gpu_route": "staging",
        "log_level": "info",
        "mpi_threads": "off",
        "timeline_mark_cycles": "on",
        "shared_allocator": "off",
        "tune": "off",
        "stats": "on",
        "replica_check": "error:50",
    }
    for row in options():
        assert row["meaning"] and row["variables"][0] == f"RINGCOMM_{row['name'].upper()}"
        text = samples.get(row["name"], "7")
        for variable in row["variables"]:
            read = getattr(Config.from_environment({variable: text}), row["name"])
            assert read != row["default"] and type(read) is type(row["default"]), variable


@given(st.integers(0, 1023), st.sampled_from(["", "K", "M", "G"]), st.sampled_from(["", "B", "iB"]), st.booleans())
def test_sizes(number, unit, ending, lower):
    text = f"{number}{unit}{ending if unit or ending != 'iB' else ''}"
    assert parse_size(text.lower() if lower else text) == number * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[unit]


def test_replica_checks():
    expected = {"warn": ("warn", 1000), "ERROR": ("error", 1000), "off": ("warn", 0), "0": ("warn", 0)}
    expected |= {"7": ("warn", 7), "warn:3": ("warn", 3), "error:1": ("error", 1)}
    for text, meaning in expected.items():
        assert replica_check(Config.from_environment({"RINGCOMM_REPLICA_CHECK": text}).replica_check) == meaning
    for text in ("on", "1.5", "-1", "off:3", "error:x", "err"):
        with pytest.raises(ValueError, match="expected "):
            Config.from_environment({"RINGCOMM_REPLICA_CHECK": text})
        with pytest.raises(ValueError):
            Config(replica_check=text)


@pytest.mark.parametrize(
    "variable, text", [("RINGCOMM_WINDOW", "many"), ("HOROVOD_FUSION_THRESHOLD", "64X"), ("RINGCOMM_CHECK", "maybe")]
)
def test_a_bad_value_names_its_variable(variable, text):
    with pytest.raises(ValueError, match=f"{variable}='{text}'"):
        Config.from_environment({variable: text})


def test_bad_values_are_refused():
    for change in (
        {"window": -1},
        {"segment_bytes": -1},
        {"alpha": float("nan")},
        {"shared_memory": "maybe"},
        {"tune": "x"},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            Config(**change)


def test_our_name_goes_before_horovods():
    both = {"HOROVOD_FUSION_THRESHOLD": "1024", "RINGCOMM_FUSION_BYTES": "2K"}
    assert Config.from_environment(both).fusion_bytes == 2048
    assert Config.from_environment({"HOROVOD_STALL_CHECK_DISABLE": "1"}).stall_warn_seconds == 0


def test_switches_of_horovod():
    for on in ("1", "2", "true"):
        config = Config.from_environment({"HOROVOD_MPI_THREADS_DISABLE": on, "HOROVOD_STALL_CHECK_DISABLE": on})
        assert not config.mpi_threads and config.stall_warn_seconds == 0
    for off in ("", "0", "no"):
        assert Config.from_environment({"HOROVOD_MPI_THREADS_DISABLE": off}) == Config()
    ours = {"RINGCOMM_STALL_WARN_SECONDS": "5", "HOROVOD_STALL_CHECK_DISABLE": "1"}
    assert Config.from_environment(ours).stall_warn_seconds == 5
    assert Config.from_environment({"HOROVOD_TIMELINE": "DYNAMIC"}).timeline == ""


def test_what_has_no_effect_is_noted_once(caplog, monkeypatch):
    monkeypatch.setattr(horovod_options, "_logged", set())
    silent = {
        "HOROVOD_RANK": "1",
        "HOROVOD_CONTROLLER": "MPI",
        "HOROVOD_AUTOTUNE": "0",
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    }
    horovod_options.log_ignored(silent)
    assert not caplog.records
    for _ in range(2):
        horovod_options.log_ignored({"HOROVOD_CYCLE_TIME": "3.5", "HOROVOD_CPU_OPERATIONS": "gloo"})
    (record,) = caplog.records
    assert "HOROVOD_CYCLE_TIME" in record.message and "HOROVOD_CPU_OPERATIONS" in record.message


def test_every_variable_is_on_the_page():
    page = (Path(__file__).parents[3] / "docs" / "options.md").read_text(encoding="utf-8")
    named = [variable for row in options() for variable in row["variables"]]
    for name in (*named, *horovod_options.SWITCHES, *horovod_options.IGNORED):
        assert f"`{name}`" in page, name


def test_cores():
    assert affinity.cores("0, 3,1") == [0, 3, 1]
    for wrong in ("a", "0,,1", "-1"):
        with pytest.raises(ValueError):
            affinity.cores(wrong)


def test_rank_0_decides_and_says_so_once(caplog):
    per_rank = [
        Config(window=2, log_level="info"),
        Config(window=3, log_level="debug"),
        Config(window=2, segment_bytes=999),
    ]
    with caplog.at_level(logging.WARNING, "ringcomm"):
        agreed = [config.agreed(per_rank, rank) for rank, config in enumerate(per_rank)]
    assert {config.window for config in agreed} == {2}
    assert {config.segment_bytes for config in agreed} == {Config().segment_bytes}
    assert [config.log_level for config in agreed] == ["info", "debug", "warning"]
    assert len(caplog.records) == 1
    assert "window" in caplog.text and "segment_bytes" in caplog.text and "log_level" not in caplog.text


def test_a_communicator_uses_what_was_agreed():
    configs = threads.run(2, lambda comm: comm.config, config=Config(window=9))
    assert {dataclasses.astuple(config) for config in configs} == {dataclasses.astuple(Config(window=9))}
