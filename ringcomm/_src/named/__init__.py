"""Horovod's semantics: named operations in any order, process sets, join, objects, and operations in graphs."""
