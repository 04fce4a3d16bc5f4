/* Why the last failing call of this thread failed. Only the library writes this record; inside a
 * callback, a program puts an error of its own there by fsdp2_callback_fail (hook.h), and nowhere
 * else. */
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

/* Fills *out as far as its struct_size goes, which may be as little as 8: struct_size and status.
 * The strings live until the next failing call on this thread. If nothing has failed yet, the
 * status is FSDP2_OK and the strings are empty. Returns FSDP2_E_NULL_ARGUMENT or
 * FSDP2_E_STRUCT_SIZE, of which no record is made. */
FSDP2_API fsdp2_status fsdp2_error_last(fsdp2_error_info* out);
/* Moves the record to the caller: fills *out as fsdp2_error_last does, with strings that lie in buf
 * (message, function, detail, one after the other, each with its NUL), and empties this thread's
 * record. For bindings that keep the error, or that may go on in another thread: they call it on
 * the thread of the call that failed, right after it. *needed is the length of all three strings.
 * (NULL, 0) only asks for it and, like any failure, leaves *out and the record as they are:
 * FSDP2_E_NULL_ARGUMENT, FSDP2_E_STRUCT_SIZE, FSDP2_E_BUFFER_TOO_SMALL, of which no record is
 * made. */
FSDP2_API fsdp2_status fsdp2_error_take(fsdp2_error_info* out, char* buf, size_t cap,
                                        size_t* needed);
/* Returns the message alone; never NULL. */
FSDP2_API const char* fsdp2_error_message(void);
/* Returns the name of a status, such as "FSDP2_E_TIMEOUT". A number that this version does not know
 * gets the name of its class: "FSDP2_E_4XX". */
FSDP2_API const char* fsdp2_status_name(fsdp2_status status);

FSDP2_END_DECLS

#endif /* FSDP2_ERROR_H_ */
