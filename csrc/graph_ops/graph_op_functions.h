/* What a framework's side calls, in plain C: a small library, which knows the framework and nothing of ringcomm's core,
 * is given this table when Python loads it. See graph_ops/graph_op.hpp for what a graph operation is. */
#ifndef RINGCOMM_GRAPH_OP_FUNCTIONS_H
#define RINGCOMM_GRAPH_OP_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

#define RINGCOMM_GRAPH_OPS_VERSION 1

typedef struct {
  const void* data;
  const int64_t* dims;
  int rank;  /* number of dimensions */
  int dtype; /* the core's number (base/types.hpp); negative: none of these */
} ringcomm_array;

/* One run of a graph operation. `context` is given back to the functions, which are called on the thread that runs it. */
typedef struct {
  void* context;
  int inputs;
  const ringcomm_array* input;
  /* Memory for result `index`, of the shape and dtype of input `like` or of other dimensions. May be the memory of that
   * input, if the framework has no other use for it. Null: it has failed. */
  void* (*allocate)(void* context, int index, int like, int dtype, const int64_t* dims, int rank);
  /* A result that lies here already, 64-byte aligned, until release(owner). 0: it has failed, and released it. */
  int (*adopt)(void* context, int index, int dtype, const int64_t* dims, int rank, void* data, size_t bytes,
               void (*release)(void* owner), void* owner);
  /* The run has failed; `kind` is base/error.hpp's ErrorKind. */
  void (*fail)(void* context, int kind, const char* text);
} ringcomm_run;

typedef struct {
  uint32_t version; /* RINGCOMM_GRAPH_OPS_VERSION */
  void* self;
  /* Returns when the results are there, or `fail` has been called. Takes no lock of Python's. */
  void (*run)(void* self, int64_t graph_op, const ringcomm_run* run);
} ringcomm_graph_ops;

#endif
