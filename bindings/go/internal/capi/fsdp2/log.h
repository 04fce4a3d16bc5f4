/* Where the library's own messages go. No error is reported in the log alone. */
#ifndef FSDP2_LOG_H_
#define FSDP2_LOG_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_LOG_DEBUG = 10,
  FSDP2_LOG_INFO = 20,
  FSDP2_LOG_WARNING = 30,
  FSDP2_LOG_ERROR = 40,
  FSDP2_LOG_OFF = 100
};

/* The library fills the struct, and sets struct_size to its own sizeof, as hook.h says. */
typedef struct fsdp2_log_record {
  uint32_t struct_size;
  int32_t level;
  int32_t rank; /* -1: none */
  int32_t reserved;
  int64_t time_ns;      /* since the epoch */
  const char* category; /* "comm", "fsdp", ...; valid during the call only, as is message */
  const char* message;
} fsdp2_log_record;

/* Runs only on threads that are inside a call of this library, possibly on several at once. It must
 * neither call the library (FSDP2_E_BUSY, which leaves no error record) nor throw. */
typedef void (*fsdp2_log_fn)(const fsdp2_log_record* record, void* user_data);

/* Sends records of at least min_level to fn, or to standard error if fn is NULL. Replaces the
 * previous function and releases its user_data. By default, records from FSDP2_LOG_WARNING up go to
 * standard error. */
FSDP2_CALL fsdp2_log_set(int32_t min_level, fsdp2_log_fn fn /*(opt)*/, void* user_data /*(opt)*/,
                         fsdp2_release_fn release /*(opt)*/);

FSDP2_END_DECLS

#endif /* FSDP2_LOG_H_ */
