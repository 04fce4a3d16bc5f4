/* The functions of the C ABI as a table, which `generate functions` writes from the headers: what
 * each takes, and a way to call it with arguments out of an array. So a test can go through all
 * functions, those that are added later included. */
#ifndef TESTS_CAPI_FUNCTIONS_H_
#define TESTS_CAPI_FUNCTIONS_H_

#include <fsdp2/fsdp2.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an argument is, as far as its declaration says. */
enum abi_role {
  ABI_NUMBER,   /* by value */
  ABI_HANDLE,   /* by value */
  ABI_TEXT,     /* const char* */
  ABI_TEXTS,    /* const char* const* */
  ABI_HANDLES,  /* const fsdp2_tensor*, an array */
  ABI_INPUT,    /* other const memory: numbers, bytes */
  ABI_OPTIONS,  /* a struct that the caller has filled, and which a few calls change */
  ABI_RESULT,   /* a struct whose struct_size the caller has set, and which the call fills */
  ABI_OUTPUT,   /* other memory that the call writes, or reads and writes */
  ABI_CALLBACK, /* a function of the caller */
  ABI_USER_DATA,
  ABI_FOREIGN /* a pointer to a struct that the headers do not define */
};

/* A parameter of a function or a field of a struct. */
struct abi_variable {
  const char* type; /* without const and stars: "int32_t", "fsdp2_mesh" */
  const char* name;
  enum abi_role role;
  int is_optional; /* marked (opt) */
  size_t size;     /* of the value, or of what the pointer points to; 0 if nobody can say */
  size_t offset;   /* of a field */
  size_t count;    /* of elements if a field is an array, else 1 */
};

union abi_argument {
  int32_t as_int32_t;
  uint32_t as_uint32_t;
  int64_t as_int64_t;
  uint64_t as_uint64_t;
  size_t as_size_t;
  uintptr_t as_uintptr_t;
  double as_double;
  fsdp2_status as_fsdp2_status;
  uint64_t id; /* of a handle */
  void* pointer;
  void (*function)(void);
};

struct abi_function {
  const char* name;
  const struct abi_variable* parameters;
  int n_parameters;
  int can_fail;                                              /* returns a status */
  fsdp2_status (*call)(const union abi_argument* arguments); /* FSDP2_OK if it returns no status */
};

struct abi_struct {
  const char* name;
  const struct abi_variable* fields;
  int n_fields;
  size_t size;
  const void* defaults; /* NULL if there is no _INIT macro */
};

/* A type of functions of the caller, and a function of it, which hands its arguments to
 * abi_called_back. */
struct abi_callback {
  const char* name;
  const struct abi_variable* parameters;
  int n_parameters;
  int can_fail;
  void (*function)(void);
};

extern const struct abi_function abi_functions[];
extern const size_t abi_n_functions;
extern const struct abi_struct abi_structs[];
extern const size_t abi_n_structs;
extern const struct abi_callback abi_callbacks[];
extern const size_t abi_n_callbacks;

/* For the program to define. */
fsdp2_status abi_called_back(const struct abi_callback* callback,
                             const union abi_argument* arguments);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_CAPI_FUNCTIONS_H_ */
