# cython: language_level=3, binding=True, embedsignature=False
# cython: auto_pickle=False, annotation_typing=False
#
# The binding of csrc for Python. It only converts arguments, results and errors. The .pxi files
# hold its parts, and docs/write_stub.py generates _core.pyi from them.
import hashlib
from typing import NamedTuple
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.map cimport map
from libcpp.memory cimport make_shared, shared_ptr, unique_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.utility cimport move, pair
from libcpp.vector cimport vector
from cpython.exc cimport PyErr_CheckSignals
from cython cimport auto_pickle, freelist
from cython.operator cimport dereference

include "_errors.pxi"
include "_arguments.pxi"
include "_exits.pxi"
include "_schedules.pxi"
include "_kernels.pxi"
include "_wire.pxi"
include "_sparse.pxi"
include "_device.pxi"
include "_request.pxi"
include "_call_cache.pxi"
include "_transport.pxi"
include "_node.pxi"
include "_worker.pxi"
include "_account.pxi"
include "_channel_config.pxi"
include "_channel.pxi"
include "_cached_method.pxi"
include "_pool.pxi"
include "_operation.pxi"
include "_plan.pxi"
include "_named.pxi"
include "_array_keys.pxi"
include "_named_cache.pxi"
include "_graph_ops.pxi"
include "_p2p.pxi"
include "_store.pxi"
