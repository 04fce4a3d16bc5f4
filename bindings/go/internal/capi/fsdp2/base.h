/* What every other header builds on: export macros, status codes, dtypes, handle types. */
#ifndef FSDP2_BASE_H_
#define FSDP2_BASE_H_

#include <stddef.h>
#include <stdint.h>

/* major << 16 | minor. While the major is 0, a new minor may change anything; see CHANGELOG.md. */
#define FSDP2_HEADER_VERSION 0x00000001u

#if defined(__GNUC__)
#define FSDP2_API __attribute__((visibility("default")))
#define FSDP2_CALL __attribute__((visibility("default"), warn_unused_result)) fsdp2_status
#else
#define FSDP2_API
#define FSDP2_CALL fsdp2_status
#endif

#ifdef __cplusplus
#define FSDP2_BEGIN_DECLS extern "C" {
#define FSDP2_END_DECLS }
#else
#define FSDP2_BEGIN_DECLS
#define FSDP2_END_DECLS
#endif

typedef int32_t fsdp2_status;
/* What a call returns. The hundreds digit is the class: 1 the caller's mistake, 2 something that is
 * not available, 3 memory, 4 communication and devices, 5 the caller's functions, 6 data, 9 a
 * defect of this library. */
enum {
  FSDP2_OK = 0,
  FSDP2_E_NULL_ARGUMENT = 101,    /* a pointer that is required */
  FSDP2_E_INVALID_HANDLE = 102,   /* null, or never given out */
  FSDP2_E_STALE_HANDLE = 103,     /* destroyed */
  FSDP2_E_HANDLE_KIND = 104,      /* a handle of the wrong kind */
  FSDP2_E_STRUCT_SIZE = 105,      /* struct_size was not set, or says too much */
  FSDP2_E_INVALID_ARGUMENT = 106, /* a value, or values that contradict each other */
  FSDP2_E_BUFFER_TOO_SMALL = 107, /* *needed has the length that it takes */
  FSDP2_E_BUSY = 108,             /* another thread is inside this object */
  FSDP2_E_WRONG_STATE = 109,      /* the call is right, but not now */
  FSDP2_E_NOT_FOUND = 201,        /* a file, a name */
  FSDP2_E_UNSUPPORTED = 202,      /* what this library, LibTorch or the machine cannot do */
  FSDP2_E_ABI_MISMATCH = 203,     /* headers, library and LibTorch that do not fit together */
  FSDP2_E_IO = 204,               /* the file system refused */
  FSDP2_E_OUT_OF_MEMORY = 301,    /* or out of threads */
  FSDP2_E_DEVICE_MEMORY = 302,    /* the device's */
  FSDP2_E_COMM = 401,             /* a connection could not be made, or broke */
  FSDP2_E_TIMEOUT = 402,          /* a rank did not come within timeout_ms */
  FSDP2_E_PEER_FAILED = 403,      /* another rank failed first; the message is that rank's */
  FSDP2_E_DEVICE_LOST = 404,      /* the device takes no more work */
  FSDP2_E_CALLBACK = 501,         /* a function of the caller's returned a failure */
  FSDP2_E_CANCELLED = 502,        /* reserved: nothing gives it yet, see convention 11 of fsdp2.h */
  FSDP2_E_CORRUPT_DATA = 601,     /* a file is not what it should be */
  FSDP2_E_NOT_FINITE = 602,       /* a loss or gradients with infinities or NaN */
  FSDP2_E_INTERNAL = 901          /* please report it */
};

/* Element types. The numbers are fixed. In options, FSDP2_DTYPE_KEEP means "leave it as it is". */
enum {
  FSDP2_DTYPE_OTHER = -1, /* comes out for a type that has no number here; never goes in */
  FSDP2_DTYPE_KEEP = 0,
  FSDP2_DTYPE_F32 = 1,
  FSDP2_DTYPE_F64 = 2,
  FSDP2_DTYPE_F16 = 3,
  FSDP2_DTYPE_BF16 = 4,
  FSDP2_DTYPE_I64 = 5,
  FSDP2_DTYPE_I32 = 6,
  FSDP2_DTYPE_I16 = 7,
  FSDP2_DTYPE_I8 = 8,
  FSDP2_DTYPE_U8 = 9,
  FSDP2_DTYPE_BOOL = 10
};

#define FSDP2_MAX_DIMS 16
/* The longest texts that are taken, in bytes without the NUL. What is longer, or no UTF-8, is
 * FSDP2_E_INVALID_ARGUMENT, as is an array of more than 2^31 elements. */
#define FSDP2_MAX_NAME 1024       /* of a parameter, a module, a dim, an entry of a state */
#define FSDP2_MAX_PATH 4096       /* in the file system; a rendezvous */
#define FSDP2_MAX_TEXT 1048576    /* a message, a value as JSON, what ranks agree on */
#define FSDP2_MAX_CONFIG 16777216 /* a config.json */
/* No struct of this library will ever be larger: a larger struct_size is FSDP2_E_STRUCT_SIZE. */
#define FSDP2_MAX_STRUCT_SIZE 4096

/* clang-format off */
typedef struct fsdp2_mesh      { uint64_t id; } fsdp2_mesh;
typedef struct fsdp2_tensor    { uint64_t id; } fsdp2_tensor;
typedef struct fsdp2_module    { uint64_t id; } fsdp2_module;
typedef struct fsdp2_shard     { uint64_t id; } fsdp2_shard;
typedef struct fsdp2_optimizer { uint64_t id; } fsdp2_optimizer;
typedef struct fsdp2_loader    { uint64_t id; } fsdp2_loader;
typedef struct fsdp2_step      { uint64_t id; } fsdp2_step;
typedef struct fsdp2_state     { uint64_t id; } fsdp2_state;
typedef struct fsdp2_scope     { uint64_t id; } fsdp2_scope;
typedef struct fsdp2_generator { uint64_t id; } fsdp2_generator;
typedef struct fsdp2_tokenizer { uint64_t id; } fsdp2_tokenizer;
/* clang-format on */

/* Called exactly once, when the library no longer needs user_data, and only if the call that took
 * user_data returned FSDP2_OK. It runs only on threads that are inside a function of this library
 * which returns a status. If user_data is last needed in such a call, it runs before that call
 * returns. If user_data is last needed elsewhere (on a thread of the library, at a thread's exit),
 * it runs in the next such call of any thread. If there is no next call before the process ends, it
 * never runs; nor does it run in a fork.
 *
 * It may call the library, which holds no lock then. The call around it has finished with the
 * caller's objects; inside a callback, the callback's rules hold for it, too. A release that it
 * causes runs after it. Its failing calls leave the error record alone. It must not throw. */
typedef void (*fsdp2_release_fn)(void* user_data);

#endif /* FSDP2_BASE_H_ */
