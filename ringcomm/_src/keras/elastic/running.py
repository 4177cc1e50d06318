"""The wrapper of the training function in elastic jobs, which the current Keras backend implements."""

from ringcomm._src.elastic.member.running import Function
from ringcomm._src.keras.backends import module_of_backend


def run(func: Function) -> Function:
    """Wraps a training function as :func:`ringcomm.elastic.run` does, with the backend's errors.

    Raises:
        HorovodInternalError: a rank was lost outside of an elastic job (PeerLostError, RankLeftError).
    """
    made: Function = module_of_backend("elastic").run(func)
    return made
