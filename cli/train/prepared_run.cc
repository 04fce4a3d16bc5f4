#include "cli/train/prepared_run.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/arguments.h"
#include "cli/train/complaint.h"
#include "cli/train/opened_data.h"
#include "cli/train/report/memory.h"
#include "cli/train/sample.h"
#include "cli/train/save/outputs.h"
#include "cli/train/setup.h"
#include "client/param_dtype.h"
#include "client/reshard_budget.h"
#include "core/config/checks/option_checks.h"
#include "core/config/checks/places.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

// Also where the path is the folder itself.
bool is_in_folder(const std::string& path, const std::string& folder) {
  if (folder.empty()) {
    return false;
  }
  std::error_code error;  // what cannot be looked up is no folder of the run's
  const auto inside = std::filesystem::weakly_canonical(path, error);
  const auto relative = inside.lexically_relative(std::filesystem::weakly_canonical(folder, error));
  return !error && !relative.empty() && *relative.begin() != "..";
}

}  // namespace

PreparedRun::PreparedRun(const config::Plan& given, const Mesh& on, StartUp& start_up)
    : plan(given), mesh(on), job(info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, on.get())) {
  settle_for_world(&plan, job.world_size);
  if (is_first_rank()) {
    save_lock.emplace(options, [](const std::string& line) { complain(rank_to_show(), line); });
    check_outputs(options);
  }
  client::settle_param_dtype(&plan, mesh.get());
  trace.emplace(options, mesh);
  rss_before_model = status_bytes("VmRSS");
  make_model(options, &module, plan.origin_of("config-overrides"));
  check_model();
  if (options.sample > 0) {
    prompt = prompt_tokens(options, model.vocab_size);
  }
  start_up.ended("model");
  open_loader(options, mesh, model.vocab_size, &loader);
  settle_length();
  evaluation.emplace(options, mesh, model.vocab_size);
  start_up.ended("data");
  shard_model(options, module.get(), mesh.get(), &shard);
  check_batch(options, config::data_ranks(plan, job.world_size), module);
  start_up.ended("shards");
  if (!options.leaves_values_to_checkpoint()) {
    check(fsdp2_shard_load_values(shard.get()));
  }
  start_up.ended("values");
  keep_units_within_budget();
  make_optimizer(options, shard.get(), &optimizer);
  make_step(options, shard.get(), optimizer.get(), &step);
  units = options.pregather ? unit_names(shard) : std::vector<std::string>();
  start_up.ended("optimizer");
  resumed = resume(options, mesh, state());
  if (given.options.epochs > 0) {
    check_epochs();
  }
  check_steps_left();
  start_up.ended("checkpoint");
}

// Whether the model can do what the options ask for. Its parameters have no values yet.
void PreparedRun::check_model() {
  model = info_of<fsdp2_module_info>(fsdp2_module_get_info, module.get());
  const std::string positions = std::to_string(model.max_positions);
  check(fsdp2_mesh_agree(mesh.get(), "model", ("positions=" + positions).c_str()));
  config::with_places(plan, [&] { check_options_for_model(options, model.max_positions); });
}

// A run in epochs is as long as its data say.
void PreparedRun::settle_length() {
  const auto data = info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader.get());
  settle_epochs(&plan, data.steps_per_epoch);
  stop = options.stop_step > 0 ? std::min(options.stop_step, options.steps) : options.steps;
}

// Whoever names a checkpoint of another run wants steps behind it. --resume auto, or the run's own
// folder, goes on with a run whatever has ended it, and may find it done.
void PreparedRun::check_steps_left() const {
  const bool names_checkpoint = !options.resume.empty() && !options.resumes_from_save_dir() &&
                                !is_in_folder(options.resume, options.save_dir);
  if (names_checkpoint && resumed.next_step >= stop) {
    throw UsageError("--resume " + options.resume + ": nothing left to do: step " +
                     std::to_string(resumed.next_step) + " of " + std::to_string(stop) +
                     ": expected a run of more steps, or --resume auto, which ends a finished run "
                     "with exit code 0");
  }
}

// Steps of other sizes would go through the data more or less often than they were to.
void PreparedRun::check_epochs() const {
  const auto data = info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader.get());
  const int64_t epoch_windows =
      options.shuffle ? data.steps_per_epoch * options.global_batch : data.n_windows;
  const auto& place = resumed.data;
  if (!place || options.resumes_partially() ||
      place->has_taken(options.global_batch, epoch_windows)) {
    return;
  }
  throw UsageError("--epochs: the " + std::to_string(place->steps) +
                   " steps before the checkpoint did not all take --global-batch " +
                   std::to_string(options.global_batch) +
                   " windows, so that the steps left are not those of the epochs left: expected "
                   "the --global-batch of all of them, or --steps");
}

void PreparedRun::keep_units_within_budget() {
  if (options.reshard_budget_gb == 0) {
    return;
  }
  if (info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader.get()).n_images > 0) {
    throw Failure("--reshard-budget-gb: " + options.records +
                  " has images, whose activations cannot be planned");
  }
  const int64_t data_ranks = config::data_ranks(plan, job.world_size);
  reshard_choice = client::choose_within_budget(options, mesh.get(), data_ranks);
  keep_gathered(*reshard_choice, shard);
}

}  // namespace fsdp2::cli
