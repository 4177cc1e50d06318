"""Horovod's module paths below ``horovod.common``, with what ringcomm has for them: nothing of elastic training yet."""
