#include "tests/fuzz/abi/scratch.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/memory_disk.h"

namespace fsdp2::fuzz {

namespace {

std::string scratch;

// Threads of a run that has failed may still write there: what they make meanwhile stays.
void remove_scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
}

}  // namespace

void enter_scratch() {
  scratch = std::string(memory_disk()) + "/abi-fuzz-" + std::to_string(::getpid());
  std::atexit(remove_scratch);
  std::at_quick_exit(remove_scratch);
  remove_scratch();  // what a run of this number that was killed may have left
  std::error_code error;
  if (!std::filesystem::create_directory(scratch, error) || ::chdir(scratch.c_str()) != 0) {
    report("no scratch directory");
  }
}

}  // namespace fsdp2::fuzz
