#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

fsdp2_go_functions fsdp2_go_library;
int fsdp2_go_loaded;

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static fsdp2_status reason; /* with `text`: why the last attempt failed */
static char text[1024];

static void* open_first(const char* const* paths, const char** found) {
  void* library = NULL;
  text[0] = '\0';
  for (; *paths != NULL && library == NULL; ++paths) {
    library = dlopen(*paths, RTLD_NOW | RTLD_LOCAL);
    *found = *paths;
    if (library == NULL && text[0] == '\0') {
      const char* why = dlerror();
      snprintf(text, sizeof(text), "%s; FSDP2_LIBRARY says where libfsdp2.so is",
               why ? why : "unknown error");
    }
  }
  reason = FSDP2_E_NOT_FOUND;
  return library;
}

static void* find(void* library, const char* path, const char* name) {
  void* function = dlsym(library, name);
  if (function == NULL && reason != FSDP2_E_ABI_MISMATCH) {
    reason = FSDP2_E_ABI_MISMATCH;
    snprintf(text, sizeof(text),
             "%s has no %s: expected libfsdp2.so of this package's version; "
             "FSDP2_LIBRARY says where it is",
             path, name);
  }
  return function;
}

static int load(const char* path) {
  const char* set = path != NULL ? path : getenv("FSDP2_LIBRARY");
  const char* const one[] = {set, NULL};
  static const char* const kNames[] = {"libfsdp2.so.0", "libfsdp2.so", NULL};
  const char* found = NULL;
  void* library = open_first(set != NULL && *set != '\0' ? one : kNames, &found);
  if (library == NULL) return 0;
#define FSDP2_GO_FIND(name, ...) \
  *(void**)&fsdp2_go_library.name = find(library, found, "fsdp2_" #name);
  FSDP2_GO_CALLS(FSDP2_GO_FIND)
  FSDP2_GO_OTHERS(FSDP2_GO_FIND)
#undef FSDP2_GO_FIND
  return reason != FSDP2_E_ABI_MISMATCH;
}

int fsdp2_go_load(const char* path) {
  pthread_mutex_lock(&loading);
  if (!fsdp2_go_loaded && load(path)) __atomic_store_n(&fsdp2_go_loaded, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&loading);
  return fsdp2_go_loaded;
}

fsdp2_go_error* fsdp2_go_load_error(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_go_error* error;
  pthread_mutex_lock(&loading);
  info.status = reason, info.message = text, info.function = "dlopen", info.detail = "";
  error = fsdp2_go_error_copy(&info);
  pthread_mutex_unlock(&loading);
  return error;
}
