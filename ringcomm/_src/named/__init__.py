"""Named operations with Horovod's semantics: submission in any order, process sets, join, objects, graph operations."""
