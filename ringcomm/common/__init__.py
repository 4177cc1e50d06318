"""Provides Horovod's module paths below ``horovod.common``, for scripts that import them."""

__all__: list[str] = []
