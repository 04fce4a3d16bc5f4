#include "cli/train/setup.h"

#include <array>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "cli/arguments.h"
#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

std::string first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr) {
      return value;
    }
  }
  return "";
}

}  // namespace

std::string rank_in_environment() {
  return first_variable({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"});
}

std::string rank_to_show() {
  return std::getenv(kRankIsShown) != nullptr ? "" : rank_in_environment();
}

bool speaks_for_all() {
  return std::getenv(kRankIsShown) == nullptr || first_variable({"LOCAL_RANK"}) == "0";
}

void tell_notes(const config::Plan& plan, size_t first,
                const std::function<void(const std::string&)>& tell) {
  for (size_t i = first; i < plan.notes.size(); ++i) {
    tell(plan.notes[i]);
  }
}

std::vector<std::string> unit_names(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_unit_count(shard.get(), &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(text_of(fsdp2_shard_get_unit_name, shard.get(), i));
  }
  return names;
}

void check_batch(const TrainOptions& options, int64_t data_ranks, const Module& module) {
  const std::array<int64_t, 2> shape = {options.global_batch / (data_ranks * options.grad_accum),
                                        options.seq_len};
  const std::vector<int64_t> zeros(static_cast<size_t>(shape[0] * shape[1]));
  std::array<Tensor, 2> tensors;
  std::vector<fsdp2_tensor> batch;
  for (Tensor& tensor : tensors) {
    check(fsdp2_tensor_from_buffer(zeros.data(), zeros.size() * sizeof(int64_t), FSDP2_DTYPE_I64,
                                   shape.data(), shape.size(), tensor.out()));
    batch.push_back(tensor.get());
  }
  const fsdp2_status status = fsdp2_module_check_inputs(module.get(), batch.data(), batch.size());
  if (status == FSDP2_E_INVALID_ARGUMENT) {
    throw UsageError(
        "--global-batch, --grad-accum and --seq-len give a rank tokens and labels of [" +
        std::to_string(shape[0]) + ", " + std::to_string(shape[1]) +
        "] at a time: " + fsdp2_error_message());
  }
  check(status);
}

}  // namespace fsdp2::cli
