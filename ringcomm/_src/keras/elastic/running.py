"""The function that starts again, of the backend that Keras runs on."""

from ringcomm._src.elastic.member.running import Function
from ringcomm._src.keras.backends import module_of_backend


def run(func: Function) -> Function:
    """:func:`ringcomm.elastic.run`, as the backend has it.

    Raises:
        HorovodInternalError: outside of an elastic job, where a rank was lost: PeerLostError, RankLeftError.
    """
    made: Function = module_of_backend("elastic").run(func)
    return made
