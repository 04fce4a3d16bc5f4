#include <cctype>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "cli/arguments.h"
#include "cli/checkpoint/commands.h"
#include "cli/checkpoint/tidied_work.h"
#include "cli/library.h"
#include "core/config/checks/torch_file.h"

namespace fsdp2::cli {

namespace {

const std::map<std::string, int32_t> kFormats = {{"dcp", FSDP2_CHECKPOINT_SHARDED},
                                                 {"safetensors", FSDP2_CHECKPOINT_SAFETENSORS},
                                                 {"pth", FSDP2_CHECKPOINT_PTH},
                                                 {"model", FSDP2_CHECKPOINT_MODEL_DIRECTORY},
                                                 {"pth-per-rank", FSDP2_CHECKPOINT_PTH_PER_RANK}};

constexpr int64_t kMostFiles = 1 << 20;           // as the library
constexpr int64_t kMostSteps = int64_t{1} << 58;  // as the library

struct ConvertArguments {
  std::string from;
  std::string to;
  std::string format;  // "": by the name of `to`
  std::string config;
  bool model_only = false;
  int64_t max_file_bytes = int64_t{5} << 30;
  int64_t ranks = 1;
  int64_t step = 0;
};

constexpr char kFormatNames[] = "dcp, safetensors, pth, model, pth-per-rank";

// Whether a name ends like that of a file: what begins with a digit is no suffix, as in run-1.5.
bool has_suffix(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  return suffix.size() > 1 && std::isalpha(static_cast<unsigned char>(suffix[1])) != 0;
}

std::string format_of(const std::filesystem::path& target) {
  if (target.extension() == ".safetensors") {
    return "safetensors";
  }
  if (config::is_torch_file(target)) {
    return "pth";
  }
  std::error_code error;
  require(!has_suffix(target) || target.extension() == ".dcp" ||
              std::filesystem::is_directory(target, error),
          target.string() + ": the suffix " + target.extension().string() +
              " is of no format: expected .safetensors, .pth, .pt, .bin, a directory's name for a "
              "DCP checkpoint, or --format " +
              kFormatNames);
  return "dcp";
}

// Throws UsageError for what the library would refuse, or what another format alone has.
void check_arguments(const CLI::App& app, const ConvertArguments& given) {
  require_within("--max-file-bytes", given.max_file_bytes, 1);
  require_within("--ranks", given.ranks, 1, kMostFiles);
  require_within("--step", given.step, 0, kMostSteps);
  const std::map<std::string, std::string> owners = {{"--model-config", "model"},
                                                     {"--max-file-bytes", "model"},
                                                     {"--ranks", "pth-per-rank"},
                                                     {"--step", "pth-per-rank"}};
  for (const auto& [flag, owner] : owners) {
    require(app.count(flag) == 0 || given.format == owner, flag + " needs --format " + owner);
  }
}

// False: help has been printed.
bool parse_convert_arguments(const std::vector<std::string>& arguments, ConvertArguments* out) {
  CLI::App app(
      "Converts a checkpoint from any format to another, with one tensor in memory at a time.",
      "fsdp2 convert");
  set_style(app, "FROM TO [OPTIONS]");
  as_path(as_utf8(app.add_option("FROM", out->from,
                                 "Checkpoint to read, or a series, whose newest is read")))
      ->required();
  as_path(as_utf8(app.add_option("TO", out->to, "File or directory to write")))->required();
  app.add_option(
         "--format", out->format,
         "Format of TO: dcp, safetensors, pth, model (config.json and safetensors), pth-per-rank; "
         "names of parameters, without \"model\" above, remain a state_dict in pth")
      ->check(one_of({"dcp", "safetensors", "pth", "model", "pth-per-rank"}))
      ->option_text("TEXT (by TO's name, else dcp)");
  app.add_flag(
      "--model-only", out->model_only,
      "Leave out all but the model (dcp, pth-per-rank: under \"model\"; pth: a state_dict)");
  as_path(
      as_utf8(app.add_option("--model-config", out->config,
                             "For --format model: config.json to write; needed if FROM has none")))
      ->option_text("FILE (FROM's)");
  add_number(app, "--max-file-bytes", &out->max_file_bytes,
             "For --format model: size above which weights are split")
      ->option_text("N (5368709120)");
  add_number(app, "--ranks", &out->ranks, "For --format pth-per-rank: number of files")
      ->option_text("N (1)");
  add_number(app, "--step", &out->step, "For --format pth-per-rank: number in the files' names")
      ->option_text("N (0)");
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  out->format = out->format.empty() ? format_of(out->to) : out->format;
  check_arguments(app, *out);
  return true;
}

void convert_as(const ConvertArguments& given) {
  check(fsdp2_log_set(FSDP2_LOG_INFO, nullptr, nullptr,
                      nullptr));  // long conversions report progress
  fsdp2_convert_options options = FSDP2_CONVERT_OPTIONS_INIT;
  options.format = kFormats.at(given.format);
  options.model_only = given.model_only ? 1 : 0;
  options.config_path = given.config.empty() ? nullptr : given.config.c_str();
  options.max_file_bytes = given.max_file_bytes;
  options.ranks = static_cast<int32_t>(given.ranks);
  options.step = given.step;
  const std::string found = text_of(fsdp2_checkpoint_find, given.from.c_str());
  check(fsdp2_checkpoint_convert(found.c_str(), given.to.c_str(), &options));
  std::cerr << "wrote " << given.to << " (" << given.format << ") from " << found << std::endl;
}

}  // namespace

int convert(const std::vector<std::string>& arguments) {
  ConvertArguments given;
  if (!parse_convert_arguments(arguments, &given)) {
    return 0;
  }
  return tidied(given.to, [&] {
    return exit_code_of("fsdp2 convert", [&] {
      convert_as(given);
      return 0;
    });
  });
}

}  // namespace fsdp2::cli
