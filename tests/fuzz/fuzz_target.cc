// A libFuzzer target: one reader of readers.h, chosen by the BUILD file.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fsdp2::fuzz::FSDP2_FUZZ_READER({reinterpret_cast<const char*>(data), size});
  return 0;
}
