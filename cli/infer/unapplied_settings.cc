#include "cli/infer/unapplied_settings.h"

#include <array>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/infer/model_json.h"

namespace fsdp2::cli {

namespace {

using Json = nlohmann::json;

// A setting of transformers' GenerationConfig by which other tokens come, and its value that
// changes nothing, beside null.
struct Setting {
  const char* key;
  double idle;  // NaN: there is none
};

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<Setting, 28> kSettings = {{{"repetition_penalty", 1},
                                                {"encoder_repetition_penalty", 1},
                                                {"no_repeat_ngram_size", 0},
                                                {"min_length", 0},
                                                {"min_new_tokens", 0},
                                                {"num_beams", 1},
                                                {"guidance_scale", 1},
                                                {"penalty_alpha", 0},
                                                {"bad_words_ids", kNone},
                                                {"sequence_bias", kNone},
                                                {"suppress_tokens", kNone},
                                                {"begin_suppress_tokens", kNone},
                                                {"forced_bos_token_id", kNone},
                                                {"forced_eos_token_id", kNone},
                                                {"exponential_decay_length_penalty", kNone},
                                                {"stop_strings", kNone},
                                                {"min_p", 0},
                                                {"typical_p", 1},
                                                {"epsilon_cutoff", 0},
                                                {"eta_cutoff", 0},
                                                {"num_beam_groups", 1},
                                                {"diversity_penalty", 0},
                                                {"constraints", kNone},
                                                {"force_words_ids", kNone},
                                                {"dola_layers", kNone},
                                                {"watermarking_config", kNone},
                                                {"token_healing", kNone},
                                                {"renormalize_logits", kNone}}};

bool is_idle(const Json& value, double idle) {
  return value.is_null() || value == Json(false) || (value.is_structured() && value.empty()) ||
         (value.is_number() && value.get<double>() == idle);
}

}  // namespace

std::string unapplied_settings(const config::TrainOptions& run) {
  if (run.model.empty()) {
    return "";
  }
  const std::string path = (std::filesystem::path(run.model) / "generation_config.json").string();
  const std::optional<Json> config = read_model_json(path);
  std::string keys;
  for (const Setting& setting : kSettings) {
    if (config && !is_idle(config->value(setting.key, Json()), setting.idle)) {
      keys += (keys.empty() ? "" : ", ") + std::string(setting.key);
    }
  }
  return keys.empty() ? "" : path + ": not applied: " + keys;
}

}  // namespace fsdp2::cli
