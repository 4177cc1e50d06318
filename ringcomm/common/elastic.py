"""Elastic training's base, under the name of the module that scripts written for Horovod import."""

from ringcomm._src.elastic.member.running import run_fn
from ringcomm._src.elastic.member.state import ObjectState, State

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]


class WorkerNotificationManager:
    """Nothing need be started to hear of hosts: a word in shared memory tells. Here because Horovod has it."""

    def init(self) -> None:
        """Does nothing."""

    def register_listener(self, listener: State) -> None:
        """Does nothing: every state hears."""

    def remove_listener(self, listener: State) -> None:
        """Does nothing."""


notification_manager = WorkerNotificationManager()
