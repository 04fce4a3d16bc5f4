/* A host program whose locale writes 0,5 for a half, as German ones do. The locale is made on the
 * spot, as machines need not have one. For C and C++. */
#ifndef FSDP2_TESTS_SUPPORT_COMMA_LOCALE_H_
#define FSDP2_TESTS_SUPPORT_COMMA_LOCALE_H_

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Sets it for all numbers of the process, with files in `directory`. Returns whether the C library
 * has taken it. setlocale(LC_NUMERIC, "C") ends it. */
static inline int set_comma_locale(const char* directory) {
  /* A compiled LC_NUMERIC of glibc: a mark, the number of fields and where each begins, in 32 bits;
   * then decimal_point, thousands_sep, grouping, the first two as wide letters, and the charset. */
  static const unsigned kHead[] = {0x20031114, 6, 0x20, 0x22, 0x23, 0x24, 0x28, 0x2c};
  static const char kFields[] = ",\0\0\0,\0\0\0\0\0\0\0UTF-8";
  char path[4096];
  FILE* file;
  snprintf(path, sizeof(path), "%s/comma", directory);
  mkdir(path, 0700);
  snprintf(path, sizeof(path), "%s/comma/LC_NUMERIC", directory);
  file = fopen(path, "wb");
  if (file == NULL) {
    return 0;
  }
  fwrite(kHead, sizeof(kHead), 1, file);
  fwrite(kFields, sizeof(kFields), 1, file);
  fclose(file);
  setenv("LOCPATH", directory, 1);
  return setlocale(LC_NUMERIC, "comma") != NULL && strcmp(localeconv()->decimal_point, ",") == 0;
}

#endif /* FSDP2_TESTS_SUPPORT_COMMA_LOCALE_H_ */
