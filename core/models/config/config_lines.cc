#include "core/models/config/config_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <variant>

namespace fsdp2::models {

namespace {

// Each function names all fields of its struct, so that one that comes to it does not compile until
// it has been thought of here.

void add_scaling(ConfigLines& lines, const std::monostate& /*scaling*/) {
  lines.add("rope_type", "default");
}

void add_scaling(ConfigLines& lines, const nn::LinearScaling& scaling) {
  const auto& [factor] = scaling;
  lines.add("rope_type", "linear");
  lines.add("factor", factor);
}

void add_scaling(ConfigLines& lines, const nn::DynamicScaling& scaling) {
  const auto& [factor, original_max_positions] = scaling;
  lines.add("rope_type", "dynamic");
  lines.add("factor", factor);
  lines.add("original_max_position_embeddings", original_max_positions);
}

void add_scaling(ConfigLines& lines, const nn::Llama3Scaling& scaling) {
  const auto& [factor, low, high, original_max_positions] = scaling;
  lines.add("rope_type", "llama3");
  lines.add("factor", factor);
  lines.add("low_freq_factor", low);
  lines.add("high_freq_factor", high);
  lines.add("original_max_position_embeddings", original_max_positions);
}

void add_scaling(ConfigLines& lines, const nn::YarnScaling& scaling) {
  const auto& [factor, attention_factor, beta_fast, beta_slow, original_max_positions, truncate] =
      scaling;
  lines.add("rope_type", "yarn");
  lines.add("factor", factor);
  lines.add("attention_factor", attention_factor);
  lines.add("beta_fast", beta_fast);
  lines.add("beta_slow", beta_slow);
  lines.add("original_max_position_embeddings", original_max_positions);
  lines.add("truncate", truncate);
}

void add_scaling(ConfigLines& lines, const nn::LongRopeScaling& scaling) {
  const auto& [short_factors, long_factors, attention_factor, original_max_positions] = scaling;
  lines.add("rope_type", "longrope");
  lines.add("short_factor", short_factors);
  lines.add("long_factor", long_factors);
  lines.add("attention_factor", attention_factor);
  lines.add("original_max_position_embeddings", original_max_positions);
}

nn::ComputationLines lines_of(const nn::RotaryOptions& rope, const std::string& prefix) {
  const auto& [theta, scaling, sections, interleaves_sections] = rope;
  ConfigLines lines(prefix);
  lines.add("rope_theta", theta);
  std::visit([&](const auto& one) { add_scaling(lines, one); }, scaling);
  lines.add("mrope_section", sections);
  lines.add("mrope_interleaved", interleaves_sections);
  return lines.take();
}

nn::ComputationLines lines_of(const ExpertsConfig& config, const std::string& prefix) {
  // Names of parameters tell those of blocks, classes and layers.
  const auto& [experts, experts_per_token, intermediate_size, normalize_weights, every,
               dense_layers, block_name, expert_class, names, router_loss_factor] = config;
  ConfigLines lines(prefix);
  lines.add("num_experts", experts);
  lines.add("num_experts_per_tok", experts_per_token);
  lines.add("moe_intermediate_size", intermediate_size);
  lines.add("norm_topk_prob", normalize_weights);
  lines.add("decoder_sparse_step", every);
  lines.add("mlp_only_layers", dense_layers);
  lines.add("router_aux_loss_coef", router_loss_factor);
  return lines.take();
}

nn::ComputationLines lines_of(const VisionConfig& config) {
  const auto& [family, layers, hidden_size, intermediate_size, heads, channels, patch_size,
               frames_per_patch, merge_size, output_size, activation, window, full_attention_layers,
               position_side, deepstack_layers] = config;
  ConfigLines lines("vision_config.");
  lines.add("family", family);
  lines.add("depth", layers);
  lines.add("hidden_size", hidden_size);
  lines.add("intermediate_size", intermediate_size);
  lines.add("num_heads", heads);
  lines.add("in_channels", channels);
  lines.add("patch_size", patch_size);
  lines.add("temporal_patch_size", frames_per_patch);
  lines.add("spatial_merge_size", merge_size);
  lines.add("out_hidden_size", output_size);
  lines.add("hidden_act", activation);
  lines.add("window_size", window);
  lines.add("fullatt_block_indexes", full_attention_layers);
  lines.add("num_position_embeddings", position_side * position_side);
  lines.add("deepstack_visual_indexes", deepstack_layers);
  return lines.take();
}

std::vector<int64_t> windows_of(const DecoderConfig& config) {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    windows.push_back(config.window_of(layer));
  }
  return windows;
}

}  // namespace

void ConfigLines::add(const char* key, nn::Activation activation) {
  for (const std::string& name : nn::activation_names()) {
    if (nn::find_activation(name) == activation) {
      add(key, name);
      return;
    }
  }
}

void ConfigLines::append(nn::ComputationLines lines) {
  lines_.insert(lines_.end(), std::make_move_iterator(lines.begin()),
                std::make_move_iterator(lines.end()));
}

nn::ComputationLines lines_of(const DecoderConfig& config, const std::string& prefix) {
  // initializer_range is that of the initial values.
  const auto& [family, family_of_parts, model_class, vocab_size, hidden_size, intermediate_size,
               layers, heads, kv_heads, head_dim, max_positions, padding_token, embedding_scale,
               norm_eps, norms_add_one, norms_outputs, rotary_dim, rope, sliding_rope, window,
               sliding_layers, score_scale, score_cap, logit_cap, attention_dropout,
               residual_dropout, qkv_bias, attention_output_bias, mlp_bias, qk_norm,
               fuses_projections, activation, experts, tie_word_embeddings, initializer_range] =
      config;
  ConfigLines lines(prefix);
  lines.add("family", family);
  lines.add("family of norms and MLPs", family_of_parts);
  lines.add("model class", model_class);
  lines.add("vocab_size", vocab_size);
  lines.add("hidden_size", hidden_size);
  lines.add("intermediate_size", intermediate_size);
  lines.add("num_hidden_layers", layers);
  lines.add("num_attention_heads", heads);
  lines.add("num_key_value_heads", kv_heads);
  lines.add("head_dim", head_dim);
  lines.add("max_position_embeddings", max_positions);
  lines.add("pad_token_id", padding_token);
  lines.add("scale of embeddings", embedding_scale);
  lines.add("rms_norm_eps", norm_eps);
  lines.add("norms add one", norms_add_one);
  lines.add("norms of outputs", norms_outputs);
  lines.add("dims that rotate", rotary_dim);
  lines.append(lines_of(rope, prefix + "rope_parameters."));
  if (sliding_rope) {
    lines.append(lines_of(*sliding_rope, prefix + "rope_parameters.sliding_attention."));
  }
  lines.add("sliding_window", windows_of(config));
  lines.add("scale of scores", score_scale);
  lines.add("attn_logit_softcapping", score_cap);
  lines.add("final_logit_softcapping", logit_cap);
  lines.add("attention_dropout", attention_dropout);
  lines.add("resid_pdrop", residual_dropout);
  lines.add("bias of q, k and v", qkv_bias);
  lines.add("attention_bias", attention_output_bias);
  lines.add("mlp_bias", mlp_bias);
  lines.add("norms of q and k", qk_norm);
  lines.add("fused projections", fuses_projections);
  lines.add("hidden_act", activation);
  if (experts) {
    lines.append(lines_of(*experts, prefix));
  }
  lines.add("tie_word_embeddings", tie_word_embeddings);
  return lines.take();
}

nn::ComputationLines lines_of(const VisionLanguageConfig& config) {
  const auto& [kind, text, vision, frames, image_token, video_token] = config;
  const auto& [image_step, video_step, frames_are_apart] = frames;
  ConfigLines lines;
  lines.add("kind", kind);
  lines.append(lines_of(text, "text_config."));
  lines.append(lines_of(vision));
  lines.add("steps of an image's frames", image_step);
  lines.add("tokens_per_second", video_step);
  lines.add("frames are apart", frames_are_apart);
  lines.add("image_token_id", image_token);
  lines.add("video_token_id", video_token);
  return lines.take();
}

}  // namespace fsdp2::models
