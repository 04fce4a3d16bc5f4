#include "include/fsdp2/plan.h"

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/nn/value_map.h"
#include "core/plan/reshard_choice.h"
#include "core/plan/step_memory.h"
#include "core/plan/step_plan.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_plan_options kPlanDefaults = FSDP2_PLAN_OPTIONS_INIT;
constexpr double kMaxStates = 1024;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr int64_t kMaxRows = int64_t{1} << 16;
constexpr int64_t kMaxTokens = int64_t{1} << 26;
constexpr int64_t kMaxTokensOfRows = int64_t{1} << 32;  // so that no number of bytes overflows

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_plan_options> = std::tuple(
    Field("reserved", &fsdp2_plan_options::reserved, Reserved()),
    Field("optimizer_states", &fsdp2_plan_options::optimizer_states, NumberRange{0, kMaxStates}),
    Field("rows", &fsdp2_plan_options::rows, Range{0, kMaxRows}),
    Field("sequence_length", &fsdp2_plan_options::sequence_length, Range{0, kMaxTokens}),
    Field("optimizer_bytes", &fsdp2_plan_options::optimizer_bytes, Range{0, kMaxBytes}));
// clang-format on

namespace {

plan::PlanOptions read_plan_options(const fsdp2_plan_options* given) {
  const fsdp2_plan_options options = read_options(given, kPlanDefaults);
  FSDP2_CHECK(options.rows * options.sequence_length <= kMaxTokensOfRows, Code::kInvalidArgument,
              "options.rows: expected at most {} tokens in all rows, found {} rows of {}",
              kMaxTokensOfRows, options.rows, options.sequence_length);
  plan::PlanOptions read;
  read.optimizer_states = options.optimizer_states;
  read.rows = options.rows;
  read.sequence_length = options.sequence_length;
  if (options.optimizer_bytes > 0) {
    read.optimizer_bytes = options.optimizer_bytes;
  }
  return read;
}

// Communicates nothing: fsdp2_shard_create has made the root of the tree.
plan::StepPlan make_plan(Call& call, fsdp2_shard shard, const fsdp2_plan_options* options) {
  const auto object = pin(shard);
  const plan::PlanOptions read = read_plan_options(options);
  enter(call, *object->module);
  return plan::make_step_plan(*object->root, read);
}

fsdp2_plan_info plan_info(const plan::StepPlan& plan) {
  fsdp2_plan_info info{};
  info.n_units = static_cast<int32_t>(plan.units.size());
  for (const plan::UnitPlan& unit : plan.units) {
    info.numel += unit.numel;
  }
  info.shard_bytes = plan.shards;
  info.gradient_bytes = plan.gradients;
  info.optimizer_bytes = plan.optimizer;
  info.peak_unsharded_bytes = plan.peak_gathered;
  info.peak_unreduced_gradient_bytes = plan.peak_whole_gradients;
  info.all_gathers = plan.all_gather.units;
  info.reduce_scatters = plan.reduce_scatter.units;
  info.all_reduces = plan.all_reduce.units;
  info.all_gather_bytes = plan.all_gather.bytes;
  info.reduce_scatter_bytes = plan.reduce_scatter.bytes;
  info.all_reduce_bytes = plan.all_reduce.bytes;
  info.all_to_alls = plan.all_to_all.calls;
  info.all_to_all_bytes = plan.all_to_all.bytes;
  return info;
}

constexpr size_t kMostMicroBatches = 1 << 20;

// The inputs of each micro batch.
nn::Values read_micro_batches(const ShardObject& object, const fsdp2_tensor* inputs,
                              size_t n_inputs, size_t micro_batches) {
  FSDP2_CHECK(micro_batches >= 1 && micro_batches <= kMostMicroBatches, Code::kInvalidArgument,
              "micro_batches: expected 1 to {}, found {}", kMostMicroBatches, micro_batches);
  const nn::Module& module = *object.module->module;
  nn::Values values = nn::values_of(read_inputs(module, inputs, n_inputs, "inputs"));
  module.check_inputs(values);
  return values;
}

fsdp2_plan_memory plan_memory(const ShardObject& object, const fsdp2_tensor* inputs,
                              size_t n_inputs, size_t micro_batches,
                              const plan::PlanOptions& options) {
  const nn::Values values = read_micro_batches(object, inputs, n_inputs, micro_batches);
  const plan::StepMemory found =
      plan::rehearse_step(*object.root, values, static_cast<int64_t>(micro_batches));
  fsdp2_plan_memory memory{};
  memory.model_bytes = found.model;
  memory.activation_bytes = found.activations;
  memory.optimizer_bytes = plan::make_step_plan(*object.root, options).optimizer;
  memory.peak_bytes = memory.model_bytes + memory.activation_bytes + memory.optimizer_bytes;
  return memory;
}

fsdp2_plan_reshard plan_reshard(const ShardObject& object, const fsdp2_tensor* inputs,
                                size_t n_inputs, size_t micro_batches,
                                const plan::PlanOptions& options, int64_t budget_bytes) {
  FSDP2_CHECK(budget_bytes >= 1, Code::kInvalidArgument,
              "budget_bytes: expected at least 1, found {}", budget_bytes);
  const nn::Values values = read_micro_batches(object, inputs, n_inputs, micro_batches);
  const plan::ReshardChoice choice = plan::choose_reshard(
      *object.root, values, static_cast<int64_t>(micro_batches), options, budget_bytes);
  fsdp2_plan_reshard reshard{};
  reshard.n_candidates = static_cast<int32_t>(choice.candidates);
  reshard.n_kept = static_cast<int32_t>(choice.kept);
  reshard.peak_bytes = choice.peak_bytes;
  reshard.resharded_peak_bytes = choice.resharded_peak_bytes;
  return reshard;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_plan_options_init(fsdp2_plan_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kPlanDefaults, "options");
  });
}

fsdp2_status fsdp2_plan_get_info(fsdp2_shard shard, const fsdp2_plan_options* options,
                                 fsdp2_plan_info* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_out_struct(out, "out");
    capi::fill_struct(out, capi::plan_info(capi::make_plan(call, shard, options)));
  });
}

fsdp2_status fsdp2_plan_describe(fsdp2_shard shard, const fsdp2_plan_options* options, char* buf,
                                 size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    capi::write_text(fsdp2::plan::to_text(capi::make_plan(call, shard, options)), buf, cap, needed);
  });
}

fsdp2_status fsdp2_plan_get_memory(fsdp2_shard shard, const fsdp2_tensor* inputs, size_t n_inputs,
                                   size_t micro_batches, const fsdp2_plan_options* options,
                                   fsdp2_plan_memory* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_out_struct(out, "out");
    const auto object = capi::pin(shard);
    const fsdp2::plan::PlanOptions read = capi::read_plan_options(options);
    capi::enter_forward(call, *object->module);
    capi::fill_struct(out, capi::plan_memory(*object, inputs, n_inputs, micro_batches, read));
  });
}

fsdp2_status fsdp2_plan_choose_reshard(fsdp2_shard shard, const fsdp2_tensor* inputs,
                                       size_t n_inputs, size_t micro_batches,
                                       const fsdp2_plan_options* options, int64_t budget_bytes,
                                       fsdp2_plan_reshard* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_out_struct(out, "out");
    const auto object = capi::pin(shard);
    const fsdp2::plan::PlanOptions read = capi::read_plan_options(options);
    capi::enter_forward(call, *object->module);
    capi::fill_struct(
        out, capi::plan_reshard(*object, inputs, n_inputs, micro_batches, read, budget_bytes));
  });
}
