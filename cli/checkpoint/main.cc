// fsdp2-inspect and fsdp2-convert, one program by two names, which those commands of fsdp2 become.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/checkpoint/commands.h"
#include "cli/library.h"

namespace fsdp2::cli {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

int run(const std::string& program, const std::vector<std::string>& arguments) {
  const std::string command = ends_with(program, "convert") ? "convert" : "inspect";
  try {
    check(fsdp2_check_version(FSDP2_HEADER_VERSION));
    return command == "convert" ? convert(arguments) : inspect(arguments);
  } catch (const UsageError& error) {
    std::cerr << "fsdp2 " << command << ": " << error.what() << std::endl;
    return kUsageExitCode;
  } catch (const std::exception& error) {
    std::cerr << "fsdp2 " << command << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) { return fsdp2::cli::run(argv[0], {argv + 1, argv + argc}); }
