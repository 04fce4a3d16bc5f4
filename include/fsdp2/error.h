/* Why the last call of this thread that failed did so. */
#ifndef FSDP2_ERROR_H_
#define FSDP2_ERROR_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_error_info {
  uint32_t struct_size;
  fsdp2_status status;
  int32_t rank;         /* of the mesh that the call was about; -1: none */
  int32_t native_code;  /* errno or the transport's own number; 0: none */
  const char* message;  /* one line; never NULL */
  const char* function; /* the fsdp2_ function that failed; never NULL */
  const char* detail;   /* further lines, may be empty; never NULL */
} fsdp2_error_info;
#define FSDP2_ERROR_INFO_INIT {(uint32_t)sizeof(fsdp2_error_info), 0, -1, 0, NULL, NULL, NULL}

/* Fills *out, whose struct_size is set. The strings live until the next failing call on this
 * thread. Before any failure: FSDP2_OK and empty strings. */
FSDP2_API void fsdp2_error_last(fsdp2_error_info* out);
/* The message alone; never NULL. */
FSDP2_API const char* fsdp2_error_message(void);
/* "FSDP2_E_TIMEOUT"; for a number that this version does not know, its class: "FSDP2_E_4XX". */
FSDP2_API const char* fsdp2_status_name(fsdp2_status status);

FSDP2_END_DECLS

#endif /* FSDP2_ERROR_H_ */
