// Reads the arguments of a command with CLI11. What is wrong with them is said in one line, which
// names the nearest known flag if a flag is unknown.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/config/checks/require.h"
#include "core/config/config_error.h"

namespace fsdp2::cli {

// The user's mistake; the message is one line.
using UsageError = config::ConfigError;

using config::most_threads;
using config::parts_of;
using config::require;
using config::require_within;

// The exit code for a UsageError.
constexpr int kUsageExitCode = 2;

// Runs a command and returns its exit code. An exception is told on standard error, in one line
// that begins with the command's name; the code is then kUsageExitCode or 1. Interrupted ends the
// process by the signal.
int exit_code_of(const std::string& command, const std::function<int()>& body);

// Gives `app` the look that all commands share; `usage` is what follows the command's name.
void set_style(CLI::App& app, const std::string& usage);

// `help` with the values that an option can take: "Sharding strategy (one of full_shard,
// no_shard)".
std::string help_with_choices(const std::string& help, const std::vector<std::string>& choices);

// Takes one of these texts, and nothing else.
CLI::Validator one_of(const std::vector<std::string>& choices);

// Takes decimal whole numbers from `least` to `most`, and nothing else. (CLI11 by itself reads -1
// as a large unsigned number and 010 as eight, and cuts off what is too large.)
CLI::Validator whole_number(int64_t least, uint64_t most);
// Takes one number, such as 3e-4.
CLI::Validator decimal_number();

// Binds an option to a number. What the type cannot hold is refused, with the option's name.
template <typename Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Number* value,
                        const std::string& help) {
  CLI::Option* const option = app.add_option(name, *value, help);
  if constexpr (std::is_integral_v<Number>) {
    using Limits = std::numeric_limits<Number>;
    return option->transform(
        whole_number(static_cast<int64_t>(Limits::min()), static_cast<uint64_t>(Limits::max())));
  } else {
    return option->check(decimal_number());
  }
}

// "expected UTF-8, found byte 0xff at 1"; nullopt for what is UTF-8.
std::optional<std::string> fault_of_utf8(const std::string& text);

// Refuses what is not UTF-8, with the option's name: for what goes to the library, which takes
// nothing else. Returns the option.
CLI::Option* as_utf8(CLI::Option* option);

// Refuses an empty text, likewise: what a shell makes of "$FOLDER" where there is no FOLDER is not
// to count as if the option were not there.
CLI::Option* as_path(CLI::Option* option);

// Fills the variables that the options of `app` are bound to. If a flag is given twice, the last
// one counts; --some_flag is taken as --some-flag. False: help was asked for and has been printed.
bool parse_arguments(CLI::App& app, std::vector<std::string> arguments);

}  // namespace fsdp2::cli
