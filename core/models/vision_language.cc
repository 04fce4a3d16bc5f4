#include "core/models/vision_language.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/models/causal_lm.h"
#include "core/models/config/config_lines.h"
#include "core/models/config/config_reader.h"
#include "core/models/config/vision_language_config.h"
#include "core/models/decoder.h"
#include "core/models/sequences.h"
#include "core/models/vision/qwen2_5_vision.h"
#include "core/models/vision/qwen3_vision.h"
#include "core/models/vision_inputs.h"
#include "core/models/vision_tokens.h"

namespace fsdp2::models {

namespace {

// What is between a model's inputs and its decoder's, wherever in the model the two parts lie.
struct VisionText {
  VisionLanguageConfig config;
  std::shared_ptr<nn::Module> visual;
  std::shared_ptr<DecoderModel> decoder;

  // Inputs of a body of CausalLM, then those of VisionPlace -> the decoder's output.
  c10::IValue run(const nn::Values& inputs) const {
    const at::Tensor& tokens = inputs.at(0).toTensor();
    nn::Values of_decoder(kPixels);
    for (size_t place = 0; place < std::min<size_t>(inputs.size(), kPixels); ++place) {
      of_decoder[place] = inputs[place];
    }
    const VisionInputs vision = read_vision_inputs(inputs, config);
    if (!vision.pixels.defined()) {
      return (*decoder)(std::move(of_decoder));
    }
    if (!of_decoder[1].isTensor()) {
      of_decoder[1] = positions_around(tokens, vision.kinds, tensor_at(inputs, 2));
    }
    std::vector<at::Tensor> places;
    for (const VisionTokens& kind : vision.kinds) {
      places.push_back(places_of(tokens, kind));
    }
    of_decoder.emplace_back(at::cat(places));
    const c10::IValue features = (*visual)(nn::Values{vision.pixels, vision.grids});
    if (features.isTuple()) {
      const auto& each = features.toTupleRef().elements();
      of_decoder.insert(of_decoder.end(), each.begin(), each.end());
    } else {
      of_decoder.push_back(features);
    }
    return (*decoder)(std::move(of_decoder));
  }
};

// A body that has the encoder in it.
class SeeingBody : public nn::Module {
 public:
  SeeingBody(std::string kind, VisionText text) : Module(std::move(kind)), text_(std::move(text)) {
    register_module("visual", text_.visual);
    register_module("language_model", text_.decoder);
  }

  nn::InputCount input_count() const override { return {1, most_inputs(text_.config)}; }

 protected:
  c10::IValue forward(nn::Values inputs) override { return text_.run(inputs); }

 private:
  VisionText text_;
};

CausalLMConfig causal_lm_config(const VisionLanguageConfig& config) {
  CausalLMConfig whole{config.kind, config.text.kind("DecoderLayer"), config.text.vocab_size,
                       config.text.max_positions, config.text.initializer_range};
  whole.draws = config.text.attention_dropout > 0;
  whole.padding_token = config.text.padding_token;
  whole.computation = lines_of(config);
  return whole;
}

class VisionLanguageModel : public CausalLM {
 public:
  // body: in which the encoder is, or null: it is beside the decoder.
  VisionLanguageModel(const VisionText& text, std::string config_json,
                      const std::shared_ptr<nn::Module>& body)
      : CausalLM(causal_lm_config(text.config), std::move(config_json), "model",
                 body != nullptr ? body : text.decoder,
                 make_head(text.decoder->embedding_weight(), text.config.text.tie_word_embeddings),
                 body != nullptr ? nullptr : text.visual),
        text_(text),
        has_own_encoder_(body == nullptr) {}

  nn::InputCount input_count() const override { return {1, most_inputs(text_.config)}; }
  void check_inputs(const nn::Values& inputs) const override {
    CausalLM::check_inputs(inputs);
    const VisionInputs vision = read_vision_inputs(inputs, text_.config);
    if (inputs[0].toTensor().is_cpu()) {
      check_vision_tokens(inputs[0].toTensor(), vision.kinds);
    }
  }
  std::string path_of(const nn::Values& inputs) const override {
    const bool has_any = read_vision_inputs(inputs, text_.config).pixels.defined();
    return has_any ? "images=some" : "images=none";
  }
  bool is_read_by_host(size_t place, const at::Tensor& input) const override {
    return is_vision_size(place) || CausalLM::is_read_by_host(place, input);
  }
  std::vector<int64_t> vision_tokens() const override {
    return {text_.config.image_token, text_.config.video_token};
  }
  nn::Values images_of_rows(const nn::Values& inputs, int64_t first, int64_t count) const override {
    return vision_inputs_of_rows(inputs, text_.config, first, count);
  }
  std::vector<std::string> no_split_kinds() const override {
    std::vector<std::string> kinds = CausalLM::no_split_kinds();
    kinds.push_back(text_.config.vision.kind("VisionBlock"));
    return kinds;
  }

 protected:
  c10::IValue call_body(nn::Values inputs) override {
    return has_own_encoder_ ? text_.run(inputs) : CausalLM::call_body(std::move(inputs));
  }

 private:
  const VisionText text_;
  const bool has_own_encoder_;
};

}  // namespace

std::shared_ptr<nn::Module> build_qwen2_5_vl(const std::string& config_json, at::ScalarType dtype) {
  const VisionLanguageConfig config = read_qwen2_5_vl_config(ConfigReader(config_json));
  const VisionText text{config, make_qwen2_5_vision(config.vision, dtype),
                        std::make_shared<DecoderModel>(config.text, dtype)};
  return std::make_shared<VisionLanguageModel>(text, config_json, nullptr);
}

std::shared_ptr<nn::Module> build_qwen3_vl(const std::string& config_json, at::ScalarType dtype) {
  const VisionLanguageConfig config = read_qwen3_vl_config(ConfigReader(config_json));
  const VisionText text{config, make_qwen3_vision(config.vision, dtype),
                        std::make_shared<DecoderModel>(config.text, dtype)};
  return std::make_shared<VisionLanguageModel>(text, config_json,
                                               std::make_shared<SeeingBody>("Qwen3VLModel", text));
}

}  // namespace fsdp2::models
