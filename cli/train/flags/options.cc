#include "cli/train/flags/options.h"

#include <filesystem>
#include <utility>

#include "cli/arguments.h"
#include "cli/train/flags/key_flag.h"
#include "cli/train/flags/shown_log.h"
#include "core/config/checks/kept_files.h"
#include "core/config/checks/option_checks.h"
#include "core/config/checks/places.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/key_table.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

// What is no key of the run.
struct Command {
  config::PlanRequest plan;
  std::string fsdp2_config_path;
  bool print_config = false;
  bool version = false;
};

constexpr char kFooter[] =
    "A FILE.yaml is one of ROLL's, of MindSpeed-MM's, or a plain one, whose keys are these flags\n"
    "without their dashes (docs/yaml.md). Flags go before --set, and --set before the file.\n\n"
    "Rank 0 writes one JSON line per step and a summary at the end. A rank learns who it is from\n"
    "the environment that fsdp2 run, torchrun, srun or mpirun sets; without one it is alone.\n\n"
    "  fsdp2 run --nproc-per-node 2 -- fsdp2 train --model DIR --tokens data.bin --steps 100";

void add_command(CLI::App* app, Command* command) {
  const std::string group = "Configuration";
  // Messages of the library say where a value comes from.
  as_path(as_utf8(app->add_option("FILE", command->plan.file, "YAML file with the configuration")))
      ->option_text("YAML file with the configuration, .yaml or .yml")
      ->group("");
  as_path(as_utf8(app->add_option("--fsdp2-config-path", command->fsdp2_config_path,
                                  "That file, by MindSpeed's name for it")))
      ->option_text("FILE")
      ->group(group);
  app->add_option("--role", command->plan.role, "Role of the file to train, if it has several")
      ->option_text("NAME")
      ->group(group);
  app->add_option("--set", command->plan.sets, "Value of a key of the file, as path.to.key=VALUE")
      ->option_text("KEY=VALUE ...")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  app->add_flag("--print-config", command->print_config,
                "Print every key with its value and where that comes from, and exit")
      ->group(group);
  app->add_flag("--version", command->version,
                "Print the versions of this program and of LibTorch and exit");
}

// Puts the flags that are given into `plan`. False: help has been printed.
bool parse(const std::vector<std::string>& arguments, Command* command, config::Plan* plan) {
  CLI::App app("Trains a language model, sharded over the ranks of the job.", "fsdp2 train");
  set_style(
      app,
      "[FILE.yaml] (--model DIR|FILE.pt2|FILE.pt | --model-config FILE) (--tokens FILE | --text "
      "FILE | --records FILE) [OPTIONS]");
  *command = Command();
  add_command(&app, command);
  for (const config::Key& key : config::train_keys(&plan->options)) {
    add_flag(&app, key);
  }
  app.footer(kFooter);
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  note_given_flags(app, plan);
  return true;
}

bool is_yaml(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".yaml" || extension == ".yml";
}

std::string file_of(const Command& command) {
  return command.plan.file.empty() ? command.fsdp2_config_path : command.plan.file;
}

config::Plan read_file(const Command& command) {
  const std::string& file = command.plan.file;
  const std::string& other = command.fsdp2_config_path;
  require(file.empty() || is_yaml(file), "unexpected argument '" + file + "' (see --help)");
  require(file.empty() || other.empty(),
          "--fsdp2-config-path " + other + " and " + file + " exclude each other");
  config::PlanRequest request = command.plan;
  request.file = file_of(command);
  return config::read_plan(request);
}

}  // namespace

Request parse_train_options(const std::vector<std::string>& arguments, config::Plan* out) {
  config::Plan unused;
  Command request;
  if (!parse(arguments, &request, &unused)) {
    return Request::kHelpPrinted;
  }
  if (request.version) {
    return Request::kVersion;
  }
  config::Plan plan = read_file(request);
  parse(arguments, &request, &plan);
  if (config::is_override(plan, "steps") && !config::is_override(plan, "epochs")) {
    config::prefer_steps(&plan);
  }
  config::leave_batch_to_ranks(&plan);
  config::with_places(plan, [&] {
    config::check_options(plan.options);
    config::check_read_files_are_kept(plan.options, file_of(request));
  });
  // Before any rank is started, as what a flag has.
  static_cast<void>(shown_log(plan.options.log));
  *out = std::move(plan);
  return request.print_config ? Request::kPrintConfig : Request::kTrain;
}

}  // namespace fsdp2::cli
