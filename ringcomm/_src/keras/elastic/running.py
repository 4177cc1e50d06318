"""The decorator of training functions in elastic jobs, which the Keras backend implements."""

from ringcomm._src.elastic.member.running import Function
from ringcomm._src.keras.backends import module_of_backend


def run(func: Function) -> Function:
    """Decorates a training function as :func:`ringcomm.elastic.run` does.

    It also recognises the loss of a rank in errors of the backend.

    Parameters
    ----------
    func : Callable
        A function of (state, ...).

    Returns
    -------
    Callable
        A function with the same arguments and result.

    Raises
    ------
    HorovodInternalError
        A rank was lost outside of an elastic job (PeerLostError, RankLeftError).

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.epoch < 3:
    ...         state.epoch += 1                       # model.fit(...)
    ...         state.commit()
    ...     return state.epoch
    >>> train(hvd.elastic.KerasState(model, epoch=0))
    3
    """
    wrapped: Function = module_of_backend("elastic").run(func)
    return wrapped
