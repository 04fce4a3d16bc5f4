#include "core/models/config/config_limits.h"
#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Qwen3-MoE: Qwen3's attention; in most layers the MLP is a mixture of experts.
DecoderConfig read_qwen3_moe_config(const ConfigReader& config) {
  DecoderConfig decoder = read_qwen3_decoder_config(config, "Qwen3Moe", {/*kv_heads=*/4});
  // All layers of this family slide, whatever "max_window_layers" says.
  decoder.sliding_layers.clear();
  ExpertsConfig experts;
  experts.experts = read_expert_count(config, decoder.layers);
  experts.experts_per_token = config.size("num_experts_per_tok", experts.experts);
  experts.intermediate_size = config.size("moe_intermediate_size", kMaxWidth);
  experts.normalize_weights = config.boolean("norm_topk_prob", false);
  experts.every = config.size("decoder_sparse_step", kMaxLayers, 1);
  experts.dense_layers = config.integers("mlp_only_layers", kMaxLayers);
  experts.router_loss_factor = read_router_loss_factor(config);
  decoder.experts = std::move(experts);
  return decoder;
}

}  // namespace fsdp2::models
