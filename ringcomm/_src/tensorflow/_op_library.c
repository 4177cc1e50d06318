/* The TensorFlow op `RingcommRun`, which runs a graph operation (csrc/graph_ops/graph_op.hpp).
 *
 * It is compiled without TensorFlow. The functions of TensorFlow's C API that it uses are declared
 * here, and looked up in the process when tf.load_op_library() loads this library. The op's first
 * input is the number of the graph operation; ringcomm_connect() sets the functions that run it.
 * Inputs are written only if TensorFlow forwards their memory to a result.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_ops/graph_op_functions.h"

#define EXPORTED __attribute__((visibility("default")))

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef int TF_Code;
typedef int TF_DataType;

#define FUNCTIONS(X)                                                                                                 \
  X(TF_Status*, TF_NewStatus, (void))                                                                                \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                             \
  X(void, TF_SetStatus, (TF_Status*, TF_Code, const char*))                                                          \
  X(TF_Code, TF_GetCode, (const TF_Status*))                                                                         \
  X(const char*, TF_Message, (const TF_Status*))                                                                     \
  X(TF_Tensor*, TF_NewTensor,                                                                                        \
    (TF_DataType, const int64_t*, int, void*, size_t, void (*)(void*, size_t, void*), void*))                        \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                             \
  X(TF_DataType, TF_TensorType, (const TF_Tensor*))                                                                  \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                             \
  X(int64_t, TF_Dim, (const TF_Tensor*, int))                                                                        \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                                        \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                                        \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                          \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                    \
  X(TF_DataType, TF_ExpectedOutputDataType, (TF_OpKernelContext*, int))                                              \
  X(TF_Tensor*, TF_AllocateOutput, (TF_OpKernelContext*, int, TF_DataType, const int64_t*, int, size_t, TF_Status*)) \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                                     \
    (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*))                              \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                             \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                               \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                            \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                     \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                    \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                   \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                      \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                                           \
    (TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*)))                                      \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                          \
  X(TF_KernelBuilder*, TF_NewKernelBuilder,                                                                          \
    (const char*, const char*, void* (*)(TF_OpKernelConstruction*), void (*)(void*, TF_OpKernelContext*),            \
     void (*)(void*)))                                                                                               \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))

#define DECLARE(result, name, arguments) result(*name) arguments;
static struct {
  FUNCTIONS(DECLARE)
} tf;

static const ringcomm_graph_ops* graph_ops;
static char problem[300] = "the library has not been loaded";

/* TensorFlow's number of each dtype of the core, in the order of csrc/base/types.hpp. */
static const TF_DataType kDTypes[] = {19, 14, 1, 2, 6, 5, 3, 9, 4, 17, 22, 23, 10, 8, 18};
static const size_t kSizes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16};
enum { kKnown = sizeof kDTypes / sizeof *kDTypes, kMostDimensions = 8 };

static int core_dtype(TF_DataType dtype) {
  for (int i = 0; i < kKnown; ++i) {
    if (kDTypes[i] == dtype) return i;
  }
  return -1;
}

/* ---- one run ---------------------------------------------------------------------------------------------------- */

typedef struct {
  TF_OpKernelContext* context;
  TF_Status* status;
} Running;

static void* allocate(void* context, int index, int like, int dtype, const int64_t* dims, int rank) {
  const Running* running = context;
  TF_Tensor* made;
  if (like >= 0) {
    const int candidate = like + 1; /* the first input is the graph operation's number */
    int forwarded = -1;
    made = tf.TF_ForwardInputOrAllocateOutput(running->context, &candidate, 1, index, dims, rank, &forwarded,
                                              running->status);
  } else {
    size_t bytes = kSizes[dtype];
    for (int i = 0; i < rank; ++i) bytes *= (size_t)dims[i];
    made = tf.TF_AllocateOutput(running->context, index, kDTypes[dtype], dims, rank, bytes, running->status);
  }
  if (!made || tf.TF_GetCode(running->status) != 0) return NULL;
  void* const data = tf.TF_TensorData(made);
  tf.TF_DeleteTensor(made); /* the context owns the memory */
  static char nothing[64];  /* address of results without elements */
  return data ? data : nothing;
}

typedef struct {
  void (*release)(void*);
  void* owner;
} Adopted;

static void reap_finished(void* data, size_t bytes, void* argument) {
  (void)data, (void)bytes;
  Adopted* const adopted = argument;
  adopted->release(adopted->owner);
  free(adopted);
}

static int adopt(void* context, int index, int dtype, const int64_t* dims, int rank, void* data, size_t bytes,
                 void (*release)(void*), void* owner) {
  const Running* running = context;
  Adopted* const adopted = malloc(sizeof *adopted);
  *adopted = (Adopted){release, owner};
  TF_Tensor* const made = tf.TF_NewTensor(kDTypes[dtype], dims, rank, data, bytes, reap_finished, adopted);
  if (!made) return 0;
  tf.TF_SetOutput(running->context, index, made, running->status);
  tf.TF_DeleteTensor(made);
  return tf.TF_GetCode(running->status) == 0;
}

/* TensorFlow's code and Python's name of each ErrorKind, in the order of csrc/base/error.hpp. */
static const struct {
  TF_Code code;
  const char* name;
} kKinds[] = {{13, "InternalError"}, {3, "ValueError"},      {9, "MismatchError"},
              {10, "RankLeftError"}, {9, "RankJoinedError"}, {9, "ShutDownError"},
              {14, "PeerLostError"}, {14, "TransportError"}, {10, "KeyboardInterrupt"}};

static void fail(void* context, int kind, const char* text) {
  const Running* running = context;
  if (kind < 0 || kind >= (int)(sizeof kKinds / sizeof *kKinds)) kind = 0;
  const size_t length = strlen(text) + 64;
  char* const whole = malloc(length);
  snprintf(whole, length, "ringcomm.%s: %s", kKinds[kind].name, text);
  tf.TF_SetStatus(running->status, kKinds[kind].code, whole);
  tf.TF_OpKernelContext_Failure(running->context, running->status);
  free(whole);
}

/* Returns the address of an input, and stores its dimensions in `dims`. Returns NULL and fails the
 * op if the input cannot be sent. Deletes the handle, so that TensorFlow can forward the memory to
 * a result; TensorFlow keeps the memory until the op ends. */
static const void* read_input(Running* running, int index, ringcomm_array* array, int64_t* dims) {
  TF_Tensor* tensor = NULL;
  tf.TF_GetInput(running->context, index, &tensor, running->status);
  if (tf.TF_GetCode(running->status) != 0) return NULL;
  const int rank = tf.TF_NumDims(tensor);
  const void* data = tf.TF_TensorData(tensor);
  static const int64_t nothing[2] = {0, 0};
  for (int i = 0; i < rank && i < kMostDimensions; ++i) dims[i] = tf.TF_Dim(tensor, i);
  *array = (ringcomm_array){data ? data : nothing, dims, rank, core_dtype(tf.TF_TensorType(tensor))};
  tf.TF_DeleteTensor(tensor);
  if (rank <= kMostDimensions && array->dtype >= 0) return array->data;
  fail(running, 1,
       rank > kMostDimensions ? "tensors of more than 8 dimensions cannot be sent"
                              : "tensors of this dtype cannot be sent");
  return NULL;
}

static void compute(void* kernel, TF_OpKernelContext* context) {
  (void)kernel;
  Running running = {context, tf.TF_NewStatus()};
  const int inputs = tf.TF_NumInputs(context) - 1;
  ringcomm_array number;
  int64_t none[kMostDimensions];
  ringcomm_array* const arrays = malloc((size_t)(inputs + 1) * (sizeof(ringcomm_array) + sizeof none));
  int64_t* const dims = (int64_t*)(arrays + inputs + 1);
  bool good = graph_ops && read_input(&running, 0, &number, none);
  if (!graph_ops)
    fail(&running, 5, "this process has not imported ringcomm.tensorflow: import it before running the graph");
  for (int i = 0; good && i < inputs; ++i) good = read_input(&running, i + 1, &arrays[i], dims + i * kMostDimensions);
  if (good) {
    const ringcomm_run run = {&running, inputs, arrays, allocate, adopt, fail};
    graph_ops->run(graph_ops->self, *(const int64_t*)number.data, &run);
  }
  free(arrays);
  tf.TF_DeleteStatus(running.status);
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

static int find_in(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  if (!info->dlpi_name || !strstr(info->dlpi_name, "tensorflow")) return 0;
  void* const library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return 0;
#define FIND(result, name, arguments) \
  if (!tf.name) *(void**)&tf.name = dlsym(library, #name);
  FUNCTIONS(FIND)
  dlclose(library);
  return 0;
}

static const char* first_missing(void) {
#define LOOK(result, name, arguments) \
  if (!tf.name) return #name;
  FUNCTIONS(LOOK)
  return NULL;
}

static void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static void register_op(TF_Status* status) {
  TF_OpDefinitionBuilder* const op = tf.TF_NewOpDefinitionBuilder("RingcommRun");
  tf.TF_OpDefinitionBuilderAddAttr(op, "Tin: list(type) >= 0");
  tf.TF_OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 0");
  tf.TF_OpDefinitionBuilderAddInput(op, "graph_op: int64");
  tf.TF_OpDefinitionBuilderAddInput(op, "x: Tin");
  tf.TF_OpDefinitionBuilderAddOutput(op, "y: Tout");
  tf.TF_OpDefinitionBuilderSetIsStateful(op, true); /* runs always, and in the program's order */
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown_shapes);
  tf.TF_RegisterOpDefinition(op, status);
  if (tf.TF_GetCode(status) != 0) return;
  TF_KernelBuilder* const kernel = tf.TF_NewKernelBuilder("RingcommRun", "CPU", NULL, compute, NULL);
  tf.TF_RegisterKernelBuilder("RingcommRun", kernel, status);
}

__attribute__((constructor)) static void load(void) {
  dl_iterate_phdr(find_in, NULL);
  const char* const missing = first_missing();
  if (missing) {
    snprintf(problem, sizeof problem, "the C API of this TensorFlow version has no function %s", missing);
    return;
  }
  TF_Status* const status = tf.TF_NewStatus();
  register_op(status);
  snprintf(problem, sizeof problem, "%s", tf.TF_GetCode(status) == 0 ? "" : tf.TF_Message(status));
  tf.TF_DeleteStatus(status);
}

/* Returns why the op could not be registered; "" if it was. */
EXPORTED const char* ringcomm_problem(void) { return problem; }

EXPORTED int ringcomm_connect(const ringcomm_graph_ops* table) {
  if (table->version != RINGCOMM_GRAPH_OPS_VERSION) return 0;
  graph_ops = table;
  return 1;
}
