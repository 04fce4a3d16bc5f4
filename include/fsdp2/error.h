/* Why the last failing call of this thread failed. */
#ifndef FSDP2_ERROR_H_
#define FSDP2_ERROR_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_error_info {
  uint32_t struct_size;
  fsdp2_status status;
  int32_t rank;         /* this one's in the job; -1: the call was about no mesh */
  int32_t native_code;  /* errno, or the transport's own code; 0: none */
  const char* message;  /* one line; never NULL */
  const char* function; /* the fsdp2_ function that failed; never NULL */
  const char* detail;   /* more lines, possibly empty; never NULL */
} fsdp2_error_info;
#define FSDP2_ERROR_INFO_INIT {(uint32_t)sizeof(fsdp2_error_info), 0, -1, 0, NULL, NULL, NULL}

/* Fills *out, whose struct_size the caller has set. The strings live until the next failing call on
 * this thread. If nothing has failed yet, the status is FSDP2_OK and the strings are empty. */
FSDP2_API void fsdp2_error_last(fsdp2_error_info* out);
/* The message alone; never NULL. */
FSDP2_API const char* fsdp2_error_message(void);
/* The name of a status, such as "FSDP2_E_TIMEOUT". A number that this version does not know gets
 * the name of its class: "FSDP2_E_4XX". */
FSDP2_API const char* fsdp2_status_name(fsdp2_status status);

FSDP2_END_DECLS

#endif /* FSDP2_ERROR_H_ */
