/* The library, opened at run time: programs build without it, and find it where FSDP2_LIBRARY says.
 * Included by calls.h, which lists the functions. */
#ifndef FSDP2_GO_LIBRARY_H_
#define FSDP2_GO_LIBRARY_H_

#include "error.h"
#include "fsdp2/fsdp2.h"

#define FSDP2_GO_FIELD(name, ...) __typeof__(fsdp2_##name)* name;
typedef struct fsdp2_go_functions {
  FSDP2_GO_CALLS(FSDP2_GO_FIELD)
  FSDP2_GO_OTHERS(FSDP2_GO_FIELD)
} fsdp2_go_functions;
#undef FSDP2_GO_FIELD

/* Valid once fsdp2_go_is_loaded() is 1; then it does not change. */
extern fsdp2_go_functions fsdp2_go_library;
extern int fsdp2_go_loaded;

/* Opens the library at `path` or, for NULL, at FSDP2_LIBRARY or where the system's loader finds it.
 * 1 if it is open, even if another call has opened it. */
int fsdp2_go_load(const char* path);
/* Why it is not. For fsdp2_go_error_free. */
fsdp2_go_error* fsdp2_go_load_error(void);

static inline int fsdp2_go_is_loaded(void) {
  return __atomic_load_n(&fsdp2_go_loaded, __ATOMIC_ACQUIRE) || fsdp2_go_load(NULL);
}

#endif /* FSDP2_GO_LIBRARY_H_ */
