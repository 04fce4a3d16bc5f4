/* The record of a failed call, taken in the same crossing as the call itself: afterwards the
 * goroutine may be on another thread, whose record is another one. */
#ifndef FSDP2_GO_ERROR_H_
#define FSDP2_GO_ERROR_H_

#include <stdlib.h>

#include "fsdp2/fsdp2.h"

typedef struct fsdp2_go_error {
  fsdp2_error_info info;
  uintptr_t
      cause;    /* a cgo.Handle, the receiver's: the error of the callback that failed; 0: none */
  char texts[]; /* what the pointers in info point to */
} fsdp2_go_error;

/* NULL for FSDP2_OK, else this thread's record, for fsdp2_go_error_free. */
fsdp2_go_error* fsdp2_go_check(fsdp2_status status);
/* An error with a message of its own; function and detail are literals. */
fsdp2_go_error* fsdp2_go_error_copy(const fsdp2_error_info* info);
void fsdp2_go_error_free(fsdp2_go_error* error);

/* Inside a callback that fails: keeps what it failed by for the call around it, which runs on this
 * thread. Returns what an earlier callback left and no call took: a cgo.Handle to delete, or 0. */
uintptr_t fsdp2_go_set_cause(uintptr_t cause);

#endif /* FSDP2_GO_ERROR_H_ */
