#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>

#include "cli/arguments.h"
#include "cli/checkpoint/commands.h"
#include "cli/library.h"
#include "cli/torch_file.h"

namespace fsdp2::cli {

namespace {

const std::map<std::string, int32_t> kFormats = {{"dcp", FSDP2_CHECKPOINT_SHARDED},
                                                 {"safetensors", FSDP2_CHECKPOINT_SAFETENSORS},
                                                 {"pth", FSDP2_CHECKPOINT_PTH},
                                                 {"model", FSDP2_CHECKPOINT_MODEL_DIRECTORY},
                                                 {"pth-per-rank", FSDP2_CHECKPOINT_PTH_PER_RANK}};

std::string format_of(const std::filesystem::path& target) {
  if (target.extension() == ".safetensors") {
    return "safetensors";
  }
  return is_torch_file(target) ? "pth" : "dcp";
}

}  // namespace

int convert(const std::vector<std::string>& arguments) {
  std::string from;
  std::string to;
  std::string format;
  std::string config;
  fsdp2_convert_options options = FSDP2_CONVERT_OPTIONS_INIT;
  bool model_only = false;
  CLI::App app(
      "Converts a checkpoint from any format to another, with one tensor in memory at a time.",
      "fsdp2 convert");
  set_style(app, "FROM TO [OPTIONS]");
  app.add_option("from", from, "Checkpoint to read, or a series, whose newest is read")
      ->required()
      ->option_text("FROM");
  app.add_option("to", to, "File or directory to write")->required()->option_text("TO");
  app.add_option(
         "--format", format,
         "Format of TO: dcp, safetensors, pth, model (config.json and safetensors), pth-per-rank")
      ->check(CLI::IsMember({"dcp", "safetensors", "pth", "model", "pth-per-rank"}))
      ->option_text("TEXT (by TO's name, else dcp)");
  app.add_flag("--model-only", model_only, "Leave out everything but the model");
  app.add_option("--config", config,
                 "For --format model: config.json to write; needed if FROM has none")
      ->option_text("FILE (FROM's)");
  app.add_option("--max-file-bytes", options.max_file_bytes,
                 "For --format model: size above which weights are split")
      ->option_text("N (5 GiB)");
  app.add_option("--ranks", options.ranks, "For --format pth-per-rank: number of files")
      ->option_text("N (1)");
  app.add_option("--step", options.step, "For --format pth-per-rank: number in the files' names")
      ->option_text("N (0)");
  if (!parse_arguments(app, arguments)) {
    return 0;
  }
  check(fsdp2_log_set(FSDP2_LOG_INFO, nullptr, nullptr,
                      nullptr));  // long conversions report progress
  format = format.empty() ? format_of(to) : format;
  options.format = kFormats.at(format);
  options.model_only = model_only ? 1 : 0;
  options.config_path = config.empty() ? nullptr : config.c_str();
  const std::string found = text_of(fsdp2_checkpoint_find, from.c_str());
  check(fsdp2_checkpoint_convert(found.c_str(), to.c_str(), &options));
  std::cerr << "wrote " << to << " (" << format << ") from " << found << std::endl;
  return 0;
}

}  // namespace fsdp2::cli
