"""Named operations with Horovod's semantics: any order, process sets, join, objects, graphs."""
