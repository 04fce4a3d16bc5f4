#include "client/reshard_choice.h"

#include <array>

namespace fsdp2::client {

namespace {

std::vector<std::string> units_that_stay_gathered(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_unit_count(shard.get(), &count));
  std::vector<std::string> names;
  for (size_t i = count; i-- > 1;) {  // 0 is the root
    std::string name = text_of(fsdp2_shard_get_unit_name, shard.get(), i);
    const auto settings =
        info_of<fsdp2_unit_settings>(fsdp2_shard_get_unit_settings, shard.get(), name.c_str());
    if (settings.reshard_after_forward == FSDP2_RESHARD_NEVER) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<fsdp2_tensor> inputs_of(const PlannedStep& step) {
  std::vector<fsdp2_tensor> inputs = {step.tokens.get(), step.tokens.get()};
  if (!step.pixels.is_null()) {
    inputs.insert(inputs.end(), {{0}, {0}, step.pixels.get(), step.grids.get()});
  }
  return inputs;
}

}  // namespace

PlannedStep planned_step(int64_t rows, int64_t length, int64_t micro_batches,
                         const fsdp2_plan_options& options) {
  PlannedStep step;
  step.micro_batches = static_cast<size_t>(micro_batches);
  step.options = options;
  const std::array<int64_t, 2> shape = {rows, length};
  const std::vector<int64_t> zeros(static_cast<size_t>(rows * length));
  check(fsdp2_tensor_from_buffer(zeros.data(), zeros.size() * sizeof(int64_t), FSDP2_DTYPE_I64,
                                 shape.data(), shape.size(), step.tokens.out()));
  return step;
}

fsdp2_plan_memory memory_of(const Shard& shard, const PlannedStep& step) {
  const auto inputs = inputs_of(step);
  return info_of<fsdp2_plan_memory>(fsdp2_plan_get_memory, shard.get(), inputs.data(),
                                    inputs.size(), step.micro_batches, &step.options);
}

ReshardChoice choose_reshard(const Shard& shard, const PlannedStep& step, int64_t budget_bytes) {
  const auto inputs = inputs_of(step);
  ReshardChoice choice;
  choice.plan =
      info_of<fsdp2_plan_reshard>(fsdp2_plan_choose_reshard, shard.get(), inputs.data(),
                                  inputs.size(), step.micro_batches, &step.options, budget_bytes);
  choice.kept = units_that_stay_gathered(shard);
  return choice;
}

}  // namespace fsdp2::client
