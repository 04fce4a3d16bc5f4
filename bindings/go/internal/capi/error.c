#include <string.h>

#include "calls.h"

static fsdp2_go_error no_memory = {{(uint32_t)sizeof(fsdp2_error_info), FSDP2_E_OUT_OF_MEMORY, -1,
                                    0, "no memory for the error", "", ""},
                                   0};

static __thread uintptr_t callback_cause;

uintptr_t fsdp2_go_set_cause(uintptr_t cause) {
  const uintptr_t before = callback_cause;
  callback_cause = cause;
  return before;
}

fsdp2_go_error* fsdp2_go_check(fsdp2_status status) {
  if (status == FSDP2_OK) return NULL;
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  size_t needed = 0;
  fsdp2_go_library.error_take(&info, NULL, 0, &needed);
  fsdp2_go_error* error = malloc(sizeof *error + needed);
  if (error == NULL) return &no_memory;
  error->info = info;
  fsdp2_go_library.error_take(&error->info, error->texts, needed, &needed);
  error->info.status = status; /* inside a log function there is no record */
  error->cause = fsdp2_go_set_cause(0);
  return error;
}

fsdp2_go_error* fsdp2_go_error_copy(const fsdp2_error_info* info) {
  const size_t length = strlen(info->message) + 1;
  fsdp2_go_error* error = malloc(sizeof *error + length);
  if (error == NULL) return &no_memory;
  error->info = *info, error->cause = 0;
  error->info.message = memcpy(error->texts, info->message, length);
  return error;
}

void fsdp2_go_error_free(fsdp2_go_error* error) {
  if (error != &no_memory) free(error);
}
