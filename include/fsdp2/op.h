/* LibTorch's operators by name, so that a program computes with tensors as PyTorch does. Autograd
 * records what they do: fsdp2_tensor_backward goes through them, and through the modules among
 * them.
 *
 *   fsdp2_value inputs[] = {FSDP2_TENSOR(x), FSDP2_TENSOR(weight)}, y;
 *   size_t n;
 *   status = fsdp2_op_call("aten::linear", inputs, 2, 0, scope, &y, 1, &n);
 */
#ifndef FSDP2_OP_H_
#define FSDP2_OP_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* What a value is, and where it lies: the field in brackets. From FSDP2_VALUE_DTYPE on they only go
 * in. */
enum {
  FSDP2_VALUE_NONE = 0,
  FSDP2_VALUE_DEFAULT = 1,  /* only goes in: as if the input were left out */
  FSDP2_VALUE_TENSOR = 2,   /* [tensor] */
  FSDP2_VALUE_INT = 3,      /* [integer] */
  FSDP2_VALUE_DOUBLE = 4,   /* [number] */
  FSDP2_VALUE_BOOL = 5,     /* [integer]: 0 or 1 */
  FSDP2_VALUE_DTYPE = 6,    /* [integer]: FSDP2_DTYPE_... */
  FSDP2_VALUE_STRING = 7,   /* [data]: a text; also a device ("cpu", "cuda:0") or a memory format */
  FSDP2_VALUE_INTS = 8,     /* [data, count]: int64_t; for a list of bools, each 0 or 1 */
  FSDP2_VALUE_DOUBLES = 9,  /* [data, count]: double */
  FSDP2_VALUE_TENSORS = 10, /* [data, count]: fsdp2_tensor; {0} is none */
  FSDP2_VALUE_GENERATOR = 11 /* [integer]: the id of a fsdp2_generator */
};

/* An element of arrays, so it has no struct_size, and never grows. Fields that its kind does not
 * use are not looked at. The data need to last only as long as the call. */
typedef struct fsdp2_value {
  int32_t kind, reserved; /* reserved: 0 */
  int64_t integer;
  double number;
  fsdp2_tensor tensor;
  const void* data;
  size_t count;
} fsdp2_value;

/* Initializers: fsdp2_value values[] = {FSDP2_TENSOR(x), FSDP2_INT(1)}; */
#define FSDP2_NONE {FSDP2_VALUE_NONE, 0, 0, 0.0, {0}, NULL, 0}
#define FSDP2_DEFAULT {FSDP2_VALUE_DEFAULT, 0, 0, 0.0, {0}, NULL, 0}
#define FSDP2_TENSOR(handle) {FSDP2_VALUE_TENSOR, 0, 0, 0.0, handle, NULL, 0}
#define FSDP2_INT(value) {FSDP2_VALUE_INT, 0, (value), 0.0, {0}, NULL, 0}
#define FSDP2_DOUBLE(value) {FSDP2_VALUE_DOUBLE, 0, 0, (value), {0}, NULL, 0}
#define FSDP2_BOOL(value) {FSDP2_VALUE_BOOL, 0, (value), 0.0, {0}, NULL, 0}
#define FSDP2_DTYPE(value) {FSDP2_VALUE_DTYPE, 0, (value), 0.0, {0}, NULL, 0}
#define FSDP2_STRING(text) {FSDP2_VALUE_STRING, 0, 0, 0.0, {0}, (text), 0}
#define FSDP2_INTS(array, n) {FSDP2_VALUE_INTS, 0, 0, 0.0, {0}, (array), (n)}
#define FSDP2_DOUBLES(array, n) {FSDP2_VALUE_DOUBLES, 0, 0, 0.0, {0}, (array), (n)}
#define FSDP2_TENSORS(array, n) {FSDP2_VALUE_TENSORS, 0, 0, 0.0, {0}, (array), (n)}
#define FSDP2_GENERATOR(handle) {FSDP2_VALUE_GENERATOR, 0, (int64_t)(handle).id, 0.0, {0}, NULL, 0}

enum { FSDP2_OP_NO_GRAD = 1 };
/* Calls an operator of LibTorch's namespace aten, such as "aten::linear" or "aten::add.Tensor": the
 * name, a point and the overload if it has one. `inputs` are the arguments of its schema in order;
 * the last ones may be missing if they have defaults, and FSDP2_DEFAULT stands for one in the
 * middle. A number is taken where a tensor or a double is wanted, and one number for a list of
 * ints. Operators and their schemas are those of the LibTorch that the library runs with
 * (fsdp2_runtime_describe), and may change with it.
 *
 * `outputs` are the results one after the other, the elements of lists as well. A tensor is a new
 * handle, which goes into `scope` unless that is {0}; an output that is left undefined is
 * FSDP2_VALUE_NONE. If the operator returns no list, their number is known, and too little room is
 * refused before it runs.
 *
 * Gradients are recorded unless the flag FSDP2_OP_NO_GRAD says no, or the call is made inside a
 * callback that runs without them.
 *
 * Errors: FSDP2_E_NOT_FOUND (no such operator), FSDP2_E_UNSUPPORTED (operators that the library
 * does not run: those outside of aten, those that write to an `out`, open files, or change the
 * memory, sizes or strides of a tensor in place, and LibTorch's internal ones, which do not check
 * what they are given; results that are sparse, quantized or on another device),
 * FSDP2_E_INVALID_ARGUMENT (inputs that do not fit the schema, which the message quotes, or each
 * other), FSDP2_E_WRONG_STATE (a tensor whose memory FSDP has freed). */
FSDP2_CALL fsdp2_op_call(const char* name, const fsdp2_value* inputs, size_t n_inputs,
                         uint32_t flags, fsdp2_scope scope /*(opt)*/, fsdp2_value* outputs,
                         size_t cap, size_t* needed);
/* Returns the schema of an operator as text: "aten::relu(Tensor self) -> Tensor". Errors: as
 * fsdp2_op_call's of the name. */
FSDP2_CALL fsdp2_op_get_schema(const char* name, char* buf, size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_OP_H_ */
