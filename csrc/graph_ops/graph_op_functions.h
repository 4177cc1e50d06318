/* The functions that a framework's side calls, in plain C. A small library depends on the
 * framework, but not on ringcomm's core; it gets this table when Python loads it.
 * graph_ops/graph_op.hpp defines graph operations. */
#ifndef RINGCOMM_GRAPH_OP_FUNCTIONS_H
#define RINGCOMM_GRAPH_OP_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

#define RINGCOMM_GRAPH_OPS_VERSION 1

typedef struct {
  const void* data;
  const int64_t* dims;
  int rank;  /* number of dimensions */
  int dtype; /* the core's number (base/types.hpp); negative: another dtype */
} ringcomm_array;

/* One run of a graph operation. The functions get `context` back, and are called on the thread
 * that runs it. */
typedef struct {
  void* context;
  int inputs;
  const ringcomm_array* input;
  /* Returns memory for result `index`. If `like` is not negative, its shape and dtype are those of
   * input `like`, and the framework may return that input's memory if it does not need it any more.
   * Null: no memory. */
  void* (*allocate)(void* context, int index, int like, int dtype, const int64_t* dims, int rank);
  /* Passes a result in memory of the core, 64-byte aligned, valid until release(owner).
   * Returns 0 if this failed; the memory has then been released. */
  int (*adopt)(void* context, int index, int dtype, const int64_t* dims, int rank, void* data, size_t bytes,
               void (*release)(void* owner), void* owner);
  /* Reports that the run has failed; `kind` is an ErrorKind of base/error.hpp. */
  void (*fail)(void* context, int kind, const char* text);
} ringcomm_run;

typedef struct {
  uint32_t version; /* RINGCOMM_GRAPH_OPS_VERSION */
  void* self;
  /* Returns when the results are complete, or `fail` has been called. Does not take the GIL. */
  void (*run)(void* self, int64_t graph_op, const ringcomm_run* run);
} ringcomm_graph_ops;

#endif
