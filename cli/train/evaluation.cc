#include "cli/train/evaluation.h"

#include <string>
#include <vector>

#include "cli/train/metrics/metrics.h"
#include "cli/train/micro_batch.h"
#include "cli/train/opened_data.h"
#include "cli/train/report/progress.h"
#include "cli/train/setup.h"

namespace fsdp2::cli {

namespace {

// This one has as many windows at a time as a step has on all ranks, in the order of the file.
Loader open_evaluation(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size) {
  TrainOptions evaluation = options;
  for (std::string* path : {&evaluation.tokens, &evaluation.text, &evaluation.records}) {
    *path = path->empty() ? "" : options.eval_data;
  }
  evaluation.data_weights.clear();
  evaluation.shuffle = evaluation.drop_last = false;
  evaluation.grad_accum = 1;
  Loader loader;
  open_loader(evaluation, mesh, vocab_size, &loader);
  return loader;
}

}  // namespace

Evaluation::Evaluation(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size)
    : options_(options),
      rows_of_forward_(options.global_batch / options.grad_accum /
                       (info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get()).world_size /
                        options.ulysses_size)),
      loader_(options.eval_data.empty() ? Loader() : open_evaluation(options, mesh, vocab_size)) {}

bool Evaluation::is_due(int64_t steps_done, int64_t stop) const {
  const bool is_turn = options_.eval_every > 0 && steps_done % options_.eval_every == 0;
  return !loader_.is_null() && (is_turn || steps_done == stop);
}

fsdp2_evaluation Evaluation::run(const Module& module) {
  fsdp2_infer_options infer = FSDP2_INFER_OPTIONS_INIT;
  infer.batch_size = rows_of_forward_;
  fsdp2_evaluation all{};
  double sum = 0.0;
  check(fsdp2_loader_set_position(loader_.get(), 0));
  check(fsdp2_module_train(module.get(), 0));
  for (int64_t i = 0; i < options_.eval_size; ++i) {
    const MicroBatch batch(options_, loader_);
    const std::vector<fsdp2_tensor> inputs = batch.inputs();
    fsdp2_evaluation part{};
    part.struct_size = sizeof(part);
    check(fsdp2_module_evaluate(module.get(), inputs.data(), inputs.size(), &infer, &part));
    all.n_labels += part.n_labels;
    sum += part.loss * static_cast<double>(part.n_labels);
  }
  check(fsdp2_module_train(module.get(), 1));
  all.loss = sum / static_cast<double>(all.n_labels);
  return all;
}

nlohmann::ordered_json line_of(const fsdp2_evaluation& evaluation, int64_t step) {
  return {{"event", "evaluation"},
          {"step", step},
          {"loss", evaluation.loss},
          {"n_labels", evaluation.n_labels}};
}

std::string told(const fsdp2_evaluation& evaluation, int64_t step) {
  return "step " + std::to_string(step + 1) + ": evaluation loss " +
         std::to_string(printable(evaluation.loss)) + " over " +
         count_text(static_cast<double>(evaluation.n_labels)) + " tokens";
}

}  // namespace fsdp2::cli
