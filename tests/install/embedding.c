/* embedding THEIR_LIBTORCH_CPU LIBFSDP2: a process that has a LibTorch of its own loads the
 * library, which uses that one. */
#include <dlfcn.h>
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <string.h>

/* How many files called libtorch_cpu.so the process has mapped. */
static int mapped_libtorchs(void) {
  char line[4096], last[4096] = "";
  FILE* maps = fopen("/proc/self/maps", "r");
  int n = 0;
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    const char* path = strchr(line, '/');
    if (path != NULL && strstr(path, "/libtorch_cpu.so") != NULL && strcmp(path, last) != 0) {
      strcpy(last, path);
      ++n;
    }
  }
  if (maps != NULL) fclose(maps);
  return n;
}

int main(int argc, char** argv) {
  fsdp2_status (*check_version)(uint32_t);
  void* library;
  void* symbol;
  if (argc != 3) return fprintf(stderr, "usage: embedding LIBTORCH_CPU LIBFSDP2\n"), 2;
  if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL ||
      (library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL)) == NULL ||
      (symbol = dlsym(library, "fsdp2_check_version")) == NULL) {
    return fprintf(stderr, "%s\n", dlerror()), 1;
  }
  memcpy(&check_version, &symbol, sizeof(symbol));
  if (check_version(FSDP2_HEADER_VERSION) != FSDP2_OK || mapped_libtorchs() != 1) {
    return fprintf(stderr, "found %d copies of LibTorch in the process\n", mapped_libtorchs()), 1;
  }
  return 0;
}
