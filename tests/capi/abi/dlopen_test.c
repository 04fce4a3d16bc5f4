/* The library as plug-ins and language runtimes load it: by its path, at run time. */
#include <dlfcn.h>
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char* path = "./libfsdp2.so.0";
  uint32_t (*version)(void);
  fsdp2_status (*check_version)(uint32_t);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* symbol;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  symbol = dlsym(library, "fsdp2_version");
  memcpy(&version, &symbol, sizeof(symbol));
  symbol = dlsym(library, "fsdp2_check_version");
  memcpy(&check_version, &symbol, sizeof(symbol));
  if (version() != FSDP2_HEADER_VERSION || check_version(FSDP2_HEADER_VERSION) != FSDP2_OK) {
    fprintf(stderr, "another version: %x\n", version());
    return 1;
  }
  if (dlclose(library) != 0 || check_version(FSDP2_HEADER_VERSION) != FSDP2_OK) {
    fprintf(stderr, "the library does not outlive dlclose\n");
    return 1;
  }
  return 0;
}
