"""Horovod's module paths below ``horovod.common``."""

__all__: list[str] = []
