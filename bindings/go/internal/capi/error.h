/* The record of a failed call, taken in the same crossing as the call itself: afterwards the
 * goroutine may be on another thread, whose record is another one. */
#ifndef FSDP2_GO_ERROR_H_
#define FSDP2_GO_ERROR_H_

#include <fsdp2/fsdp2.h>
#include <stdlib.h>

typedef struct fsdp2_go_error {
  fsdp2_error_info info;
  char texts[]; /* what the pointers in info point to */
} fsdp2_go_error;

/* NULL for FSDP2_OK, else this thread's record, for fsdp2_go_error_free. */
fsdp2_go_error* fsdp2_go_check(fsdp2_status status);
void fsdp2_go_error_free(fsdp2_go_error* error);

#endif /* FSDP2_GO_ERROR_H_ */
