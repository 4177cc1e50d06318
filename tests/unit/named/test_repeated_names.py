"""The names of nameless operations repeat: a submission waits for the earlier operation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ringcomm._src.named import named


class Engine:
    """Refuses submissions until the earlier operation has ended, at a given look at the engine."""

    def __init__(self, looks):
        self.looks, self.submissions = looks, 0

    def earlier_is_pending(self):
        self.looks -= 1
        return self.looks >= 0

    def submit(self, set_id, request):
        self.submissions += 1
        if self.earlier_is_pending():
            raise ValueError(f"an operation named '{request.name}' is already in flight")
        return request

    def submit_group(self, set_id, requests):
        return [self.submit(set_id, request) for request in requests]

    def pending(self):
        return ["allreduce.noname.0"] if self.earlier_is_pending() else []


def submit(engine, nameless, number=1):
    session = SimpleNamespace(engine=engine, worker=SimpleNamespace(threaded=True))
    process_set = SimpleNamespace(session=lambda: session, set_id=lambda: 0)
    request = SimpleNamespace(name="allreduce.noname.0", nameless=nameless)
    return named._submit_when_free(process_set, [request] * number), request


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("looks", range(9))
def test_the_earlier_operation_may_end_at_any_moment(looks, number):
    operations, request = submit(Engine(looks), True, number)
    assert operations == [request] * number


def test_other_errors_are_raised():
    engine = Engine(looks=1000)
    engine.pending = lambda: ["allreduce.other"]
    with pytest.raises(ValueError, match="already in flight"):
        submit(engine, True)
    engine = Engine(looks=1)
    with pytest.raises(ValueError, match="already in flight"):
        submit(engine, False)
    assert engine.submissions == 1
