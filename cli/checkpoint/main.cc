// fsdp2-inspect and fsdp2-convert: one program under two names, which `fsdp2 inspect` and
// `fsdp2 convert` become.
#include <filesystem>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/checkpoint/commands.h"
#include "cli/end_process.h"
#include "cli/library.h"

namespace fsdp2::cli {
namespace {

int run(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  const bool converts = program.filename() == "fsdp2-convert";
  return exit_code_of(converts ? "fsdp2 convert" : "fsdp2 inspect", [&] {
    check(fsdp2_check_version(FSDP2_HEADER_VERSION));
    return converts ? convert(arguments) : inspect(arguments);
  });
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::run(argv[0], {argv + 1, argv + argc}));
}
