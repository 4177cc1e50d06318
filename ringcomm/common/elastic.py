"""The base of elastic training, under the module name that scripts for Horovod import."""

from ringcomm._src.elastic.member.running import run_fn
from ringcomm._src.elastic.member.state import ObjectState, State

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]


class WorkerNotificationManager:
    """Horovod's notification manager, for compatibility.

    It is not used, because states detect changes of hosts in shared memory.
    """

    def init(self) -> None:
        """Does nothing."""

    def register_listener(self, listener: State) -> None:
        """Does nothing: every state detects changes of hosts."""

    def remove_listener(self, listener: State) -> None:
        """Does nothing."""


notification_manager = WorkerNotificationManager()
