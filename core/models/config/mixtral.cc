#include <utility>

#include "core/base/error.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Mixtral: Mistral's attention, and in each layer a mixture of experts, whose weights add up to 1.
DecoderConfig read_mixtral_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(
      config, "Mixtral", {/*kv_heads=*/8, /*head_dim=*/0, /*norm_eps=*/1e-5, /*rope_theta=*/1e6});
  decoder.window = config.has("sliding_window") ? read_window(config) : 0;
  ExpertsConfig experts;
  experts.experts = read_expert_count(config, decoder.layers);
  experts.experts_per_token = config.size("num_experts_per_tok", experts.experts);
  experts.intermediate_size = decoder.intermediate_size;
  experts.normalize_weights = true;
  experts.block_name = "block_sparse_moe";
  experts.expert_class = "BlockSparseTop2MLP";
  experts.names = {/*gate=*/"w1", /*up=*/"w3", /*down=*/"w2"};
  experts.router_loss_factor = read_router_loss_factor(config);
  const double noise = config.not_negative("router_jitter_noise", 0.0);
  FSDP2_CHECK(noise == 0, Code::kUnsupported,
              "config.json: \"router_jitter_noise\" {} is not supported; supported: 0", noise);
  decoder.experts = std::move(experts);
  return decoder;
}

}  // namespace fsdp2::models
