"""Error feedback stays exact when the ranks, formats, algorithms or units change between calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm import Compression, Config, Feedback, threads

FORMATS = [
    Compression.int8,
    Compression.int4(stochastic=True),
    Compression.onebit(mean="two"),
    Compression.ternary,
    Compression.topk(0.1),
    Compression.topk(0.05, values="bf16"),
    Compression.threshold(0.5),
]
MOST = 5  # ranks
CALLS = st.fixed_dictionaries(
    {
        "size": st.integers(1, MOST),
        "wire": st.sampled_from([None, *FORMATS]),
        "algorithm": st.sampled_from([None, "round_robin", "all_to_all", "master_worker"]),
        "segment": st.sampled_from([0, 512, 4096]),
        "undone": st.booleans(),
        "infinite": st.sampled_from([False, False, False, True]),
        "units": st.sampled_from([1.0, 1.0, 0.5, 2.0, 3.0]),  # factor on the residuals before the call
    }
)


@given(calls=st.lists(CALLS, min_size=1, max_size=12), count=st.sampled_from([1, 33, 1500, 3001]))
@settings(max_examples=40, deadline=None)
def test_what_arrives_and_what_is_owed_is_what_was_given(calls, count):
    """A rank that does not take part in some calls keeps its residual."""
    residual = [Feedback(count) for _ in range(MOST)]
    given, arrived = np.zeros(count), np.zeros(count)
    for number, call in enumerate(calls):
        inputs = [
            np.random.default_rng(100 * number + rank).standard_normal(count).astype(np.float32)
            for rank in range(call["size"])
        ]
        if call["infinite"]:
            inputs[-1][count // 2] = np.inf
        given, arrived = given * call["units"], arrived * call["units"]
        for one in residual:
            one.scale(call["units"])

        def program(comm, call=call, inputs=inputs):
            mine = residual[comm.rank]
            algorithm, wire = call["algorithm"], call["wire"]
            return comm.allreduce(inputs[comm.rank], algorithm=algorithm, wire=wire, feedback=mine if wire else None)

        config = Config(shared_memory="off", segment_bytes=call["segment"])
        results = threads.run(call["size"], program, config=config)
        assert all(one.tobytes() == results[0].tobytes() for one in results)
        if (call["undone"] or call["infinite"]) and call["wire"]:
            for one in residual[: call["size"]]:
                one.undo()
        elif not call["infinite"]:
            given, arrived = given + sum(inputs), arrived + results[0]
        scale = max(1.0, np.abs(given).max())
        left = sum(one.residual.astype(np.float64) for one in residual)
        np.testing.assert_allclose((arrived + left) / scale, given / scale, atol=1e-4)


@pytest.mark.parametrize("wire", FORMATS, ids=str)
@pytest.mark.parametrize(("size", "count"), [(16, 3001), (3, (1 << 20) + 3)])
def test_many_ranks_and_many_elements(wire, size, count):
    def program(comm):
        feedback = Feedback(count)
        inputs = [np.random.default_rng((call, comm.rank)).standard_normal(count, np.float32) for call in range(2)]
        return [comm.allreduce(x, wire=wire, feedback=feedback).tobytes() for x in inputs]

    ranks = threads.run(size, program, config=Config(shared_memory="off"))
    assert all(one == ranks[0] for one in ranks)
