// Generation of text.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/infer.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/train/infer/generate.h"
#include "include/fsdp2/module.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_generate_options kGenerateDefaults = FSDP2_GENERATE_OPTIONS_INIT;
constexpr int32_t kMaxNewTokens = 1 << 24;
constexpr Range kRowNumber = {0, std::numeric_limits<int64_t>::max() / 2};

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_generate_options> = std::tuple(
    Field("max_new_tokens", &fsdp2_generate_options::max_new_tokens, Range{0, kMaxNewTokens}),
    Field("top_k", &fsdp2_generate_options::top_k, Elsewhere()),
    Field("reshard_after_forward", &fsdp2_generate_options::reshard_after_forward, ReadBy<read_infer_reshard>()),
    Field("temperature", &fsdp2_generate_options::temperature, Elsewhere()),
    Field("seed", &fsdp2_generate_options::seed, Anything()),
    Field("top_p", &fsdp2_generate_options::top_p, Elsewhere()),
    Field("first_row", &fsdp2_generate_options::first_row, PerRank(kRowNumber)),
    Field("stop_tokens", &fsdp2_generate_options::stop_tokens, Elsewhere()),
    Field("n_stop_tokens", &fsdp2_generate_options::n_stop_tokens, Elsewhere()),
    Field("vision_inputs", &fsdp2_generate_options::vision_inputs, Elsewhere()),
    Field("n_vision_inputs", &fsdp2_generate_options::n_vision_inputs, Elsewhere()));
// clang-format on

namespace {

train::GenerateOptions generate_options(const fsdp2_generate_options& options) {
  train::GenerateOptions out;
  out.max_new_tokens = options.max_new_tokens;
  out.first_row = options.first_row;
  out.reshard_after_forward = read_infer_reshard(options.reshard_after_forward);
  out.sampler = {options.temperature, options.top_k, options.top_p, options.seed};
  check_array(options.stop_tokens, options.n_stop_tokens, "options.stop_tokens");
  if (options.n_stop_tokens > 0) {
    out.stop_tokens.assign(options.stop_tokens, options.stop_tokens + options.n_stop_tokens);
  }
  return out;
}

// Undefined where one is left out.
std::vector<at::Tensor> read_vision_inputs(const nn::Module& module,
                                           const fsdp2_generate_options& options) {
  constexpr const char* kName = "options.vision_inputs";
  check_array(options.vision_inputs, options.n_vision_inputs, kName);
  train::check_vision_count(module, options.n_vision_inputs);
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < options.n_vision_inputs; ++i) {
    const fsdp2_tensor* input = options.vision_inputs + i;
    inputs.push_back(input->id == 0 ? at::Tensor() : read_tensors(input, 1, kName).front());
  }
  return inputs;
}

struct GenerateRequest {
  train::TokenRows prompts;
  train::GenerateOptions options;
};

// Checks everything on all ranks. read: the prompts, and what else this call has to look at.
template <typename Read>
GenerateRequest agree_on_generation(Call& call, const ModuleObject& object,
                                    const fsdp2_generate_options* given, const Read& read) {
  GenerateRequest request;
  agree_on_all_ranks(call, object, [&] {
    check_usable(object);
    const fsdp2_generate_options options = read_options(given, kGenerateDefaults);
    request.options = generate_options(options);
    request.options.vision = read_vision_inputs(*object.module, options);
    request.prompts = read(request.options);
    train::check_generation(*object.module, request.prompts, request.options);
    return text_of(options);
  });
  return request;
}

train::TokenRows generate(Call& call, ModuleObject& object, const GenerateRequest& request) {
  materialize(object);
  call.share_failure();
  return train::generate(*object.module, request.prompts, request.options);
}

void generate_one(Call& call, ModuleObject& object, const int64_t* prompt, size_t n_prompt,
                  const fsdp2_generate_options* given, int64_t* tokens, size_t cap,
                  size_t* n_tokens) {
  enter_collective(call, object);
  GenerateRequest request;
  size_t needed = 0;
  const std::exception_ptr refusal = caught_in([&] {
    request = agree_on_generation(call, object, given, [&](const train::GenerateOptions& options) {
      check_array(prompt, n_prompt, "prompt");
      check_not_null(n_tokens, "n_tokens");
      check_room("tokens", tokens, cap, static_cast<size_t>(options.max_new_tokens), &needed);
      return train::TokenRows{std::vector<int64_t>(prompt, prompt + n_prompt)};
    });
  });
  if (refusal != nullptr) {
    // Not where this rank, with too little room, hears of another rank's failure instead.
    if (code_of(refusal) == Code::kBufferTooSmall) {
      *n_tokens = needed;
    }
    std::rethrow_exception(refusal);
  }
  const std::vector<int64_t> made = generate(call, object, request).front();
  std::copy(made.begin(), made.end(), tokens);
  *n_tokens = made.size();
}

// The tokens that count in each row.
train::TokenRows read_prompts(fsdp2_tensor handle, const int64_t* lengths, size_t n_lengths) {
  check_array(lengths, n_lengths, "lengths");
  const at::Tensor tokens = read_tensors(&handle, 1, "prompts").front();
  FSDP2_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, Code::kInvalidArgument,
              "prompts: expected an int64 tensor [batch, sequence], found {} dims of type {}",
              tokens.dim(), c10::toString(tokens.scalar_type()));
  const int64_t rows = tokens.size(0);
  const int64_t columns = tokens.size(1);
  FSDP2_CHECK(n_lengths == 0 || static_cast<int64_t>(n_lengths) == rows, Code::kInvalidArgument,
              "n_lengths: expected {}, the rows of the prompts, or 0, found {}", rows, n_lengths);
  const at::Tensor on_host = tokens.to(at::kCPU).contiguous();
  train::TokenRows prompts;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length =
        n_lengths == 0 ? columns
                       : check_integer(lengths[row], 1, std::max<int64_t>(1, columns), "lengths");
    const int64_t* begin = on_host.const_data_ptr<int64_t>() + row * columns;
    prompts.emplace_back(begin, begin + std::min(length, columns));
  }
  return prompts;
}

void generate_batch(Call& call, ModuleObject& object, fsdp2_tensor prompts, const int64_t* lengths,
                    size_t n_lengths, const fsdp2_generate_options* given, fsdp2_tensor* tokens,
                    fsdp2_tensor* counts) {
  enter_collective(call, object);
  const GenerateRequest request =
      agree_on_generation(call, object, given, [&](const train::GenerateOptions& /*options*/) {
        check_not_null(tokens, "tokens");
        check_not_null(counts, "counts");
        return read_prompts(prompts, lengths, n_lengths);
      });
  const train::TokenRows made = generate(call, object, request);
  const auto rows = static_cast<int64_t>(made.size());
  const int64_t columns = request.options.max_new_tokens;
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  const at::Tensor all = at::zeros({rows, columns}, on_host);
  const at::Tensor lengths_made = at::zeros({rows}, on_host);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t>& of_row = made[static_cast<size_t>(row)];
    std::copy(of_row.begin(), of_row.end(), all.mutable_data_ptr<int64_t>() + row * columns);
    lengths_made.mutable_data_ptr<int64_t>()[row] = static_cast<int64_t>(of_row.size());
  }
  GivenTensors given_tensors;
  given_tensors.give(all);
  given_tensors.give(lengths_made);
  const std::vector<fsdp2_tensor> handles = given_tensors.keep();
  *tokens = handles[0];
  *counts = handles[1];
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_generate_options_init(fsdp2_generate_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kGenerateDefaults, "options");
  });
}

fsdp2_status fsdp2_module_generate(fsdp2_module module, const int64_t* prompt, size_t n_prompt,
                                   const fsdp2_generate_options* options, int64_t* tokens,
                                   size_t cap, size_t* n_tokens) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::generate_one(call, *object, prompt, n_prompt, options, tokens, cap, n_tokens);
  });
}

fsdp2_status fsdp2_module_generate_batch(fsdp2_module module, fsdp2_tensor prompts,
                                         const int64_t* lengths, size_t n_lengths,
                                         const fsdp2_generate_options* options,
                                         fsdp2_tensor* tokens, fsdp2_tensor* counts) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::generate_batch(call, *object, prompts, lengths, n_lengths, options, tokens, counts);
  });
}
