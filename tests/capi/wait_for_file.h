/* By which one process tells another that it has got somewhere. A file that includes this defines
 * _POSIX_C_SOURCE. */
#ifndef TESTS_CAPI_WAIT_FOR_FILE_H_
#define TESTS_CAPI_WAIT_FOR_FILE_H_

#include <time.h>
#include <unistd.h>

#include "tests/capi/harness.h"

static inline void wait_ms(long ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = ms % 1000 * 1000000;
  nanosleep(&time, NULL);
}

/* Ends the process if the file does not come within a minute. */
static inline void wait_for_file(const char* path, const char* otherwise) {
  int ms;
  for (ms = 0; access(path, F_OK) != 0; ms += 2) {
    if (!EXPECT(ms < 60000)) {
      fprintf(stderr, "%s\n", otherwise);
      exit(harness_result());
    }
    wait_ms(2);
  }
}

#endif /* TESTS_CAPI_WAIT_FOR_FILE_H_ */
