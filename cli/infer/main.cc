// fsdp2-generate and fsdp2-score: one program under two names, which `fsdp2 generate` and
// `fsdp2 score` become.
#include <filesystem>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/end_process.h"
#include "cli/infer/commands.h"
#include "cli/train/library_log.h"
#include "cli/train/setup.h"

namespace fsdp2::cli {
namespace {

bool is_first_rank() { return rank_in_environment().empty() || rank_in_environment() == "0"; }

int run(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  const bool scores = program.filename() == "fsdp2-score";
  return exit_code_of(scores ? "fsdp2 score" : "fsdp2 generate", [&] {
    try {
      show_library_log();
      scores ? score(arguments) : generate(arguments);
    } catch (const UsageError&) {
      if (is_first_rank()) {
        throw;
      }
      return kUsageExitCode;
    }
    return 0;
  });
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::run(argv[0], {argv + 1, argv + argc}));
}
