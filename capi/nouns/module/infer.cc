// Forward-only work over modules.
#include <optional>
#include <string>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/infer.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/train/infer/score.h"
#include "include/fsdp2/module.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_infer_options kInferDefaults = FSDP2_INFER_OPTIONS_INIT;
constexpr Range kInferCount = {0, int64_t{1} << 31};

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_infer_options> = std::tuple(
    Field("reshard_after_forward", &fsdp2_infer_options::reshard_after_forward, ReadBy<read_infer_reshard>()),
    Field("batch_size", &fsdp2_infer_options::batch_size, PerRank(kInferCount)),
    Field("chunk_size", &fsdp2_infer_options::chunk_size, kInferCount),
    Field("temperature", &fsdp2_infer_options::temperature, Anything()));
// clang-format on

namespace {

// The arguments of a call that scores tokens.
struct ScoreRequest {
  std::vector<at::Tensor> inputs;
  train::InferOptions options;
};

train::InferOptions infer_options(const fsdp2_infer_options& options) {
  train::InferOptions out;
  out.reshard_after_forward = read_infer_reshard(options.reshard_after_forward);
  out.batch_size = options.batch_size;
  out.chunk_rows = options.chunk_size;
  out.temperature = options.temperature;
  return out;
}

// Checks everything on all ranks; from here on, the call computes. check_outputs: of this call.
template <typename Check>
ScoreRequest begin_scoring(Call& call, ModuleObject& object, const fsdp2_tensor* inputs,
                           size_t n_inputs, const fsdp2_infer_options* given,
                           const Check& check_outputs) {
  enter_collective(call, object);
  ScoreRequest request;
  agree_on_all_ranks(call, object, [&] {
    check_usable(object);
    check_outputs();
    const fsdp2_infer_options options = read_options(given, kInferDefaults);
    request.options = infer_options(options);
    request.inputs = read_inputs(*object.module, inputs, n_inputs, "inputs");
    train::check_score(*object.module, request.inputs, request.options);
    return text_of(options);
  });
  materialize(object);
  call.share_failure();
  return request;
}

void score(Call& call, ModuleObject& object, const fsdp2_tensor* inputs, size_t n_inputs,
           const fsdp2_infer_options* options, fsdp2_tensor* log_probs, fsdp2_tensor* entropies) {
  const ScoreRequest request = begin_scoring(call, object, inputs, n_inputs, options, [&] {
    check_not_null(log_probs, "log_probs");
    check_not_null(entropies, "entropies");
  });
  const nn::TokenScores scores = train::score(*object.module, request.inputs, request.options);
  GivenTensors made;
  made.give(scores.log_probs);
  made.give(scores.entropies);
  const std::vector<fsdp2_tensor> handles = made.keep();
  *log_probs = handles[0];
  *entropies = handles[1];
}

fsdp2_evaluation evaluate(Call& call, ModuleObject& object, const fsdp2_tensor* inputs,
                          size_t n_inputs, const fsdp2_infer_options* options,
                          const fsdp2_evaluation* out) {
  const ScoreRequest request =
      begin_scoring(call, object, inputs, n_inputs, options, [&] { check_out_struct(out, "out"); });
  const train::Evaluation made = train::evaluate(*object.module, request.inputs, request.options);
  fsdp2_evaluation evaluation{};
  evaluation.n_labels = made.n_labels;
  evaluation.loss = made.loss;
  return evaluation;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_infer_options_init(fsdp2_infer_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kInferDefaults, "options");
  });
}

fsdp2_status fsdp2_module_score(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                const fsdp2_infer_options* options, fsdp2_tensor* log_probs,
                                fsdp2_tensor* entropies) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::score(call, *object, inputs, n_inputs, options, log_probs, entropies);
  });
}

fsdp2_status fsdp2_module_evaluate(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                   const fsdp2_infer_options* options, fsdp2_evaluation* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::fill_struct(out, capi::evaluate(call, *object, inputs, n_inputs, options, out));
  });
}
