/* The XLA handler that runs a graph operation (csrc/graph_ops/graph_op.hpp), for the C API of XLA's
 * foreign function interface.
 *
 * It is compiled without XLA. The structures of the C API are declared here up to the last field
 * that is read, and their sizes are not compared. The handler reports API version 0.1; these fields
 * have not changed since. The attribute `graph_op` is the number of the graph operation. The
 * attribute `inputs` is the number of its arguments; a token follows them. With the attribute
 * `agrees`, the operation compares the branches of a conditional between the ranks.
 * ringcomm_connect() sets the functions that run graph operations.
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

/* XLA's number of each dtype of the core, in the order of csrc/base/types.hpp. */
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

/* Fails the call. `kind` is an ErrorKind of csrc/base/error.hpp, which has the same order. */
static void fail(void* context, int kind, const char* text) {
  static const char* const names[] = {"InternalError", "ValueError",      "MismatchError",
                                      "RankLeftError", "RankJoinedError", "ShutDownError",
                                      "PeerLostError", "TransportError",  "KeyboardInterrupt"};
  static const int codes[] = {13, 3, 3, 10, 9, 9, 14, 14, 1};
  if (kind < 0 || kind > 8) kind = 0;
  fail_with(context, codes[kind], names[kind], text);
}

/* Returns XLA's buffer for a result. Fails the call if the traced shape is different. */
static Buffer* room(Running* running, int index, const int64_t* dims, int rank) {
  Buffer* const buffer = running->frame->results.values[index];
  if (buffer->rank == rank && memcmp(buffer->dims, dims, (size_t)rank * sizeof *dims) == 0) return buffer;
  fail_with(running, 3, "MismatchError",
            "the result does not have the shape that JAX traced, because ranks passed different numbers of rows. "
            "Under jax.jit, all ranks must pass the same number of rows");
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
    fail_with(&running, 9, "ShutDownError",
              "this process has not imported ringcomm.jax: import it before running the program");
    return running.error;
  }
  const int inputs = (int)attribute(frame, "inputs"); /* the token after them only orders calls */
  ringcomm_array* const arrays = malloc((size_t)(inputs + 1) * sizeof *arrays);
  static char nothing[64];
  for (int i = 0; i < inputs; ++i) {
    const Buffer* const buffer = frame->arguments.values[i];
    arrays[i] = (ringcomm_array){buffer->data ? buffer->data : nothing, buffer->dims, (int)buffer->rank,
                                 core_dtype(buffer->dtype)};
    if (arrays[i].dtype < 0) fail_with(&running, 3, "ValueError", "arrays of this dtype cannot be sent");
  }
  const ringcomm_run run = {&running, inputs, arrays, allocate, adopt, fail};
  if (!running.error) graph_ops->run(graph_ops->self, attribute(frame, "graph_op"), &run);
  if (!running.error && attribute(frame, "agrees") == 1) {
    const Buffer* const buffer = frame->results.values[0]; /* maxima of branch and -branch */
    const int32_t* const extremes = buffer->data;
    if (extremes[0] != -extremes[1])
      fail_with(&running, 3, "MismatchError",
                "ranks take different branches of a conditional (lax.cond, lax.switch) that contains collectives: "
                "make its predicate equal on all ranks. If optax skips steps, put distributed() outside: "
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
