"""Process sets, under the module name that scripts for Horovod import."""

from ringcomm._src.named.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
