#include "cli/arguments.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/help_style.h"
#include "cli/interruption.h"
#include "core/base/nearest.h"
#include "core/base/text.h"

namespace fsdp2::cli {

namespace {

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::string with_dashes(std::string argument) {
  if (argument.rfind("--", 0) == 0) {
    std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
  }
  return argument;
}

// "--flag=" as a flag and an empty value: CLI11 would give the flag the next argument.
std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> separate;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument.rfind("--", 0) == 0 && argument.find('=') + 1 == argument.size();
    separate.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty) {
      separate.emplace_back();
    }
  }
  return separate;
}

std::string quoted_if_empty(const std::string& text) { return text.empty() ? "''" : text; }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// Unlike get_name(), also that of a positional that help does not list.
std::string name_of(const CLI::Option& option) {
  return option.get_positional() ? option.get_single_name() : option.get_name();
}

std::string missing_positional(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_required() && option->count() == 0) {
      return name_of(*option) + " is missing (see --help)";
    }
  }
  return "";
}

// One line about what CLI11 found wrong, in its own words where they are good enough.
std::string message_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string line = text.substr(0, text.find('\n'));
  const size_t colon = line.find(": ");
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && colon != std::string::npos) {
    return line.substr(0, colon) + line.substr(colon + 1);  // our checks begin with the value
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr &&
      line.find(" missing") != std::string::npos) {
    return line.substr(0, line.find(':')) + " needs a value (see --help)";
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string missing = missing_positional(app);
    return missing.empty() ? line + " (see --help)" : missing;
  }
  return line;
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& argument) {
  if (argument.rfind('-', 0) != 0) {
    throw UsageError("unexpected argument '" + argument + "' (see --help)");
  }
  const std::string name = argument.substr(0, argument.find('='));
  const std::string meant = fsdp2::nearest(name, flag_names(app));
  throw UsageError("unknown flag " + name +
                   (meant.empty() ? " (see --help)" : "; did you mean " + meant + "?"));
}

}  // namespace

CLI::Validator whole_number(int64_t least, uint64_t most) {
  const auto read = [least, most](std::string& text) -> std::string {
    const std::string sign = text.substr(0, text.rfind('-', 0) == 0 ? 1 : 0);
    const std::string digits = text.substr(sign.size());
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
      return quoted_if_empty(text) + ": expected a whole number (see --help)";
    }
    errno = 0;
    const bool fits = sign.empty() ? std::strtoull(text.c_str(), nullptr, 10) <= most
                                   : std::strtoll(text.c_str(), nullptr, 10) >= least;
    if (!fits || errno != 0) {
      return text + ": expected " + std::to_string(least) + " to " + std::to_string(most);
    }
    // CLI11 takes what begins with 0 for octal.
    text = sign + digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    return "";
  };
  return CLI::Validator(read, "");
}

CLI::Validator decimal_number() {
  const auto check = [](const std::string& text) -> std::string {
    char* end = nullptr;
    std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0'
               ? ""
               : quoted_if_empty(text) + ": expected a number (see --help)";
  };
  return CLI::Validator(check, "");
}

std::optional<std::string> fault_of_utf8(const std::string& text) {
  const std::optional<size_t> malformed = find_malformed_utf8(text);
  if (!malformed) {
    return std::nullopt;
  }
  std::ostringstream fault;
  fault << "expected UTF-8, found byte 0x" << std::hex
        << static_cast<int>(static_cast<unsigned char>(text[*malformed])) << std::dec << " at "
        << *malformed;
  return fault.str();
}

namespace {

// `fault_of` says what is wrong with a value, if anything is.
template <typename FaultOf>
CLI::Option* refuse_faults(CLI::Option* option, const FaultOf& fault_of) {
  // Thrown and not returned: CLI11 would put the value, with its bytes, into the message.
  const auto refuse_others = [option, fault_of](const std::string& text) {
    if (const std::optional<std::string> fault = fault_of(text)) {
      throw UsageError(name_of(*option) + ": " + *fault);
    }
    return std::string();
  };
  return option->check(CLI::Validator(refuse_others, ""));
}

}  // namespace

CLI::Option* as_utf8(CLI::Option* option) { return refuse_faults(option, fault_of_utf8); }

CLI::Option* as_path(CLI::Option* option) {
  return refuse_faults(option, [](const std::string& text) {
    return text.empty() ? std::optional<std::string>("expected a path, found an empty text")
                        : std::nullopt;
  });
}

int exit_code_of(const std::string& command, const std::function<int()>& body) {
  try {
    return body();
  } catch (const UsageError& error) {
    std::cerr << command << ": " << error.what() << std::endl;
    return kUsageExitCode;
  } catch (const std::exception& error) {
    std::cerr << command << ": " << error.what() << std::endl;
    return 1;
  } catch (const Interrupted& interrupted) {
    end_by_signal(interrupted.signal);
  }
}

CLI::Validator one_of(const std::vector<std::string>& choices) {
  const auto check = [choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) {
      return "";
    }
    const std::string meant = fsdp2::nearest(text, choices);
    return quoted_if_empty(text) + ": expected " + joined(choices) +
           (meant.empty() ? "" : "; did you mean " + meant + "?");
  };
  return CLI::Validator(check, "");
}

std::string help_with_choices(const std::string& help, const std::vector<std::string>& choices) {
  return choices.empty() ? help : help + " (one of " + joined(choices) + ")";
}

void set_style(CLI::App& app, const std::string& usage) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.formatter(help_style(usage));
  app.set_help_flag("-h,--help", "Print this help and exit");
}

bool parse_arguments(CLI::App& app, std::vector<std::string> arguments) {
  app.allow_extras();
  arguments = with_empty_values(arguments);
  std::transform(arguments.begin(), arguments.end(), arguments.begin(), with_dashes);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(message_of(app, error));
  }
  if (!app.remaining().empty()) {
    refuse(app, app.remaining().front());
  }
  return true;
}

}  // namespace fsdp2::cli
