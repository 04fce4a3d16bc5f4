/* The record of a failed call, read in the same crossing as the call itself: afterwards the
 * goroutine may be on another thread, whose record is another one. */
#ifndef FSDP2_GO_ERROR_H_
#define FSDP2_GO_ERROR_H_

#include <fsdp2/fsdp2.h>
#include <stdlib.h>

typedef struct fsdp2_go_error {
  fsdp2_status status;
  int32_t rank, native_code;
  char *message, *function, *detail;
} fsdp2_go_error;

/* NULL for FSDP2_OK, else a copy of this thread's record, for fsdp2_go_error_free. */
fsdp2_go_error* fsdp2_go_check(fsdp2_status status);
void fsdp2_go_error_free(fsdp2_go_error* error);

#endif /* FSDP2_GO_ERROR_H_ */
