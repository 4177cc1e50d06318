"""``RayExecutor`` as in ``horovod.ray``: ranks that are Ray actors.

::

    from ringcomm.ray import RayExecutor

    executor = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=4)
    executor.start()
    results = executor.run(train, args=[0.1])  # one result per rank, in order
    executor.shutdown()

Each actor is one rank. :mod:`ringcomm._src.platform.pmi` starts MPI in the actors; it supports
MPICH only.
"""

from ringcomm._src.base.installed import missing_message

if _missing := missing_message("ray", "ringcomm.ray"):
    raise ImportError(_missing)

from ringcomm._src.launch.ray_runner import RayExecutor

__all__ = ["RayExecutor"]
