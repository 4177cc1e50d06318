"""Horovod's module paths below ``horovod.common``."""
