#include "error.h"

#include <string.h>

static fsdp2_go_error no_memory = {FSDP2_E_OUT_OF_MEMORY, -1, 0, NULL, NULL, NULL};

fsdp2_go_error* fsdp2_go_check(fsdp2_status status) {
  if (status == FSDP2_OK) return NULL;
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_last(&info);
  fsdp2_go_error* error = malloc(sizeof *error);
  if (error == NULL) return &no_memory;
  error->status = status;
  error->rank = info.rank;
  error->native_code = info.native_code;
  error->message = strdup(info.message);
  error->function = strdup(info.function);
  error->detail = strdup(info.detail);
  return error;
}

void fsdp2_go_error_free(fsdp2_go_error* error) {
  if (error == &no_memory) return;
  free(error->message);
  free(error->function);
  free(error->detail);
  free(error);
}
