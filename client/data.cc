#include "client/objects.h"

#include <string>
#include <vector>

#include "client/numbers.h"
#include "core/config/checks/data_files.h"
#include "core/config/checks/exported_file.h"
#include "core/config/checks/require.h"
#include "core/config/model_presets.h"

namespace fsdp2::client {

namespace {

// The vocabulary that the tokens of the data lie in. Bytes need none from a model that tells none.
int64_t vocabulary_of(const config::TrainOptions& options, int64_t models_own) {
  constexpr int64_t kBytes = 256;
  return options.vocab_size > 0 ? options.vocab_size : models_own > 0 ? models_own : kBytes;
}

int32_t data_format(const config::TrainOptions& options) {
  return !options.tokens.empty() ? FSDP2_TOKENS_AUTO
         : !options.text.empty() ? FSDP2_TOKENS_BYTES
                                 : FSDP2_TOKENS_RECORDS;
}

}  // namespace

std::string config_path(const config::TrainOptions& options) {
  if (!options.model_config.empty()) {
    return config::is_model_preset(options.model_config) ? "" : options.model_config;
  }
  return config::is_exported_file(options.model) ? "" : options.model;
}

void open_data(const config::TrainOptions& options, fsdp2_mesh mesh, int64_t vocab_size,
               Loader* out) {
  fsdp2_loader_options loader = FSDP2_LOADER_OPTIONS_INIT;
  loader.format = data_format(options);
  loader.order = options.shuffle ? FSDP2_ORDER_SHUFFLED : FSDP2_ORDER_SEQUENTIAL;
  loader.accumulate = static_cast<int32_t>(options.grad_accum);
  loader.sequence_length = options.seq_len;
  loader.global_batch = options.global_batch;
  loader.vocab_size = vocabulary_of(options, vocab_size);
  loader.seed = options.seed;
  loader.cut_long_records = options.cut_long_records ? 1 : 0;
  loader.skip_bad_records = options.skip_bad_records ? 1 : 0;
  loader.drop_last = options.drop_last ? 1 : 0;
  loader.read_ahead = static_cast<int32_t>(options.read_ahead);
  const std::string tokenizer = config::tokenizer_path(options);
  const bool has_tokens = loader.format == FSDP2_TOKENS_AUTO;
  loader.tokenizer = has_tokens || tokenizer.empty() ? nullptr : tokenizer.c_str();
  const std::string vision = loader.format == FSDP2_TOKENS_RECORDS ? config_path(options) : "";
  loader.vision_model = vision.empty() ? nullptr : vision.c_str();
  const std::vector<std::string> files = config::data_files(options);
  if (options.data_weights.empty()) {
    check(fsdp2_loader_open(mesh, files.front().c_str(), &loader, out->out()));
    return;
  }
  std::vector<double> weights;
  for (const std::string& weight : config::parts_of(options.data_weights)) {
    weights.push_back(config::read_data_weight(weight));
  }
  check(fsdp2_loader_open_mixture(mesh, texts_of(files).data(), weights.data(), files.size(),
                                  &loader, out->out()));
}

}  // namespace fsdp2::client
