// Reads the arguments of a sub-command with CLI11; what is wrong with them is said in one line,
// with the nearest known flag where a flag is unknown.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp2::cli {

// The user's mistake; the message is one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The exit code for a UsageError.
constexpr int kUsageExitCode = 2;

// Gives `app` the look that all sub-commands share; `usage` is what stands after the program's
// name.
void set_style(CLI::App& app, const std::string& usage);

// Fills what the options of `app` are bound to. Of a flag given twice the last one holds, and
// --some_flag is taken as --some-flag. False: help was asked for and has been printed to stdout.
bool parse_arguments(CLI::App& app, std::vector<std::string> arguments);

// The candidate that `word` most likely stands for, or "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace fsdp2::cli
