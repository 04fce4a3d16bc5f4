// Reads the arguments of a command with CLI11. What is wrong with them is said in one line, which
// names the nearest known flag if a flag is unknown.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
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

// Throws UsageError unless `condition` holds.
void require(bool condition, const std::string& message);

// Runs a command and returns its exit code. An exception is told on standard error, in one line
// that begins with the command's name; the code is then kUsageExitCode or 1.
int exit_code_of(const std::string& command, const std::function<int()>& body);

// Gives `app` the look that all commands share; `usage` is what follows the command's name.
void set_style(CLI::App& app, const std::string& usage);

// `help` with the values that an option can take: "Sharding strategy: full_shard, no_shard".
std::string help_with_choices(std::string help, const std::vector<std::string>& choices);

// Fills the variables that the options of `app` are bound to. If a flag is given twice, the last
// one counts; --some_flag is taken as --some-flag. False: help was asked for and has been printed.
bool parse_arguments(CLI::App& app, std::vector<std::string> arguments);

// The candidate that `word` most likely stands for, or "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace fsdp2::cli
