/* XLA's handler for what is to communicate, through the C API of its foreign function interface.
 *
 * It is compiled without XLA: the few structures that are read are declared here as far as they are read; their sizes
 * are never compared. It says API version 0.1, whose part of them has not changed since. An operation names a graph operation
 * (csrc/graph_ops/graph_op.hpp) by the attribute `graph_op`, and by `inputs` how many arguments it is of; a token follows them. What runs
 * it comes by ringcomm_connect(). By `agrees` it is an operation on the branch that a conditional takes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_ops/graph_op_functions.h"

#define EXPORTED __attribute__((visibility("default")))

typedef struct Extension {
  size_t struct_size;
  int type; /* 1: metadata */
  struct Extension* next;
} Extension;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int major_version, minor_version;
} Version;

typedef struct {
  size_t struct_size;
  Version api_version;
  uint32_t traits;
} Metadata;

typedef struct {
  Extension base;
  Metadata* metadata;
} MetadataExtension;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;
} ErrorArguments;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  Version api_version;
  const void* internal;
  void* (*create_error)(ErrorArguments*);
} Api;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} Buffer;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  void** values;
} Values; /* arguments and results: types are 1, for buffers */

typedef struct {
  const char* data;
  size_t length;
} Bytes;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  Bytes** names;
  void** values;
} Attributes;

typedef struct {
  int dtype;
  void* value;
} Scalar;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  int stage;
  Values arguments, results;
  Attributes attributes;
} Frame;

static const ringcomm_graph_ops* graph_ops;

/* The core's dtypes (csrc/base/types.hpp), in its order, as XLA's. */
static const int kDTypes[] = {10, 16, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9, 1, 15, 18};

static int core_dtype(int dtype) {
  for (int i = 0; i < (int)(sizeof kDTypes / sizeof *kDTypes); ++i) {
    if (kDTypes[i] == dtype) return i;
  }
  return -1;
}

typedef struct {
  const Frame* frame;
  void* error;
} Running;

static void fail_with(Running* running, int code, const char* name, const char* text) {
  if (running->error) return;
  const size_t length = strlen(text) + 64;
  char* const whole = malloc(length);
  snprintf(whole, length, "ringcomm.%s: %s", name, text);
  ErrorArguments arguments = {sizeof arguments, NULL, whole, code};
  running->error = running->frame->api->create_error(&arguments);
  free(whole);
}

/* In the order of ErrorKind (csrc/base/error.hpp). */
static void fail(void* context, int kind, const char* text) {
  static const char* const names[] = {"InternalError", "ValueError",      "MismatchError",
                                      "RankLeftError", "RankJoinedError", "ShutDownError",
                                      "PeerLostError", "TransportError",  "KeyboardInterrupt"};
  static const int codes[] = {13, 3, 3, 10, 9, 9, 14, 14, 1};
  if (kind < 0 || kind > 8) kind = 0;
  fail_with(context, codes[kind], names[kind], text);
}

/* Where XLA has room for a result: of the shape that it was told when it was traced, or it is an error. */
static Buffer* room(Running* running, int index, const int64_t* dims, int rank) {
  Buffer* const buffer = running->frame->results.values[index];
  if (buffer->rank == rank && memcmp(buffer->dims, dims, (size_t)rank * sizeof *dims) == 0) return buffer;
  fail_with(running, 3, "MismatchError",
            "the result has another shape than JAX was told: ranks gave different numbers of rows. Shapes are fixed "
            "when JAX traces: give the same on all ranks");
  return NULL;
}

static void* allocate(void* context, int index, int like, int dtype, const int64_t* dims, int rank) {
  (void)like, (void)dtype;
  Buffer* const buffer = room(context, index, dims, rank);
  static char nothing[64];
  return buffer ? buffer->data ? buffer->data : nothing : NULL;
}

static int adopt(void* context, int index, int dtype, const int64_t* dims, int rank, void* data, size_t bytes,
                 void (*release)(void*), void* owner) {
  (void)dtype;
  Buffer* const buffer = room(context, index, dims, rank);
  if (buffer) memcpy(buffer->data, data, bytes);
  release(owner);
  return buffer != NULL;
}

static int64_t attribute(const Frame* frame, const char* wanted) {
  for (int64_t i = 0; i < frame->attributes.size; ++i) {
    const Bytes* const name = frame->attributes.names[i];
    if (name->length == strlen(wanted) && memcmp(name->data, wanted, name->length) == 0)
      return *(const int64_t*)((const Scalar*)frame->attributes.values[i])->value;
  }
  return -1;
}

static void* execute(const Frame* frame) {
  Running running = {frame, NULL};
  if (!graph_ops) {
    fail_with(&running, 9, "ShutDownError", "ringcomm is not imported in this process");
    return running.error;
  }
  const int inputs = (int)attribute(frame, "inputs"); /* a later input only orders this call */
  ringcomm_array* const arrays = malloc((size_t)(inputs + 1) * sizeof *arrays);
  static char nothing[64];
  for (int i = 0; i < inputs; ++i) {
    const Buffer* const buffer = frame->arguments.values[i];
    arrays[i] = (ringcomm_array){buffer->data ? buffer->data : nothing, buffer->dims, (int)buffer->rank,
                                 core_dtype(buffer->dtype)};
    if (arrays[i].dtype < 0) fail_with(&running, 3, "ValueError", "arrays of this dtype cannot travel");
  }
  const ringcomm_run run = {&running, inputs, arrays, allocate, adopt, fail};
  if (!running.error) graph_ops->run(graph_ops->self, attribute(frame, "graph_op"), &run);
  if (!running.error && attribute(frame, "agrees") == 1) {
    const Buffer* const buffer = frame->results.values[0]; /* the largest branch of all ranks, minus the smallest */
    const int32_t* const extremes = buffer->data;
    if (extremes[0] != -extremes[1])
      fail_with(&running, 3, "MismatchError",
                "ranks take different branches of a conditional (lax.cond, lax.switch) that holds collectives: let its "
                "predicate be the same on every rank. Where optax skips steps, distribute outside: "
                "ringcomm.jax.distributed(optax.apply_if_finite(...))");
  }
  free(arrays);
  return running.error;
}

EXPORTED void* ringcomm_run_graph_op(Frame* frame) {
  const Extension* const extension = frame->extension_start;
  if (extension && extension->type == 1) {
    Metadata* const metadata = ((const MetadataExtension*)extension)->metadata;
    metadata->api_version.major_version = 0;
    metadata->api_version.minor_version = 1;
    return NULL;
  }
  return frame->stage == 3 ? execute(frame) : NULL;
}

EXPORTED int ringcomm_connect(const ringcomm_graph_ops* table) {
  if (table->version != RINGCOMM_GRAPH_OPS_VERSION) return 0;
  graph_ops = table;
  return 1;
}
