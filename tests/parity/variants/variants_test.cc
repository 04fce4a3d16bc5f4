// Options of config.json that no golden model has (rope types, sliding windows, activations, scales
// of scores, mistral): logits, loss and gradients equal those of transformers; make_variants.py
// makes them.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "tests/support/ranks.h"
#include "tests/support/token_windows.h"

namespace fsdp2 {
namespace {

using nlohmann::json;

const std::string kGolden = "tests/parity/golden/";
constexpr int64_t kRows = 4;
constexpr int64_t kLength = 32;

json read_variants() {
  std::ifstream file("tests/parity/variants/variants.json");
  return json::parse(file);
}

bool sees_images(const std::string& model) { return ends_with(model, "-vl"); }

std::string directory_of(const std::string& model) {
  return (sees_images(model) ? "tests/parity/vision_language/" : kGolden + "models/") + model;
}

// [kRows, kLength + 1] int64.
at::Tensor windows_of(const std::string& model) {
  if (sees_images(model)) {  // without the tokens that mean something to it
    return windows_of("tiny-llama").remainder(80).add(10);
  }
  return read_windows(kGolden + "tokens/" + model + ".bin", kRows, kLength);
}

json config_of(const std::string& model) {
  std::ifstream file(directory_of(model) + "/config.json");
  return json::parse(file);
}

json config_of_variant(const json& variant) {
  json config = config_of(variant.at("model"));
  for (const auto& [key, value] : variant.at("changes").items()) {
    if (key == "text_config") {
      config[key].update(value);
    } else {
      config[key] = value;
    }
  }
  return config;
}

// A rank's part of a variant, whose batch is divided over the ranks.
struct RankOfVariant {
  RankOfVariant(const std::shared_ptr<World>& world, const json& variant)
      : directory(directory_of(variant.at("model"))) {
    model = models::build(config_of_variant(variant).dump());
    root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, world->size()), {},
                                     model->no_split_kinds());
    fsdp::load_parameters(*root, directory);
    windows = windows_of(variant.at("model"));
    const int64_t rows = kRows / world->size();
    own = windows.narrow(0, world->rank() * rows, rows);
  }

  static at::Tensor inputs_of(const at::Tensor& rows) {
    return rows.narrow(1, 0, kLength).contiguous();
  }
  static at::Tensor labels_of(const at::Tensor& rows) {
    return rows.narrow(1, 1, kLength).contiguous();
  }

  ckpt::HuggingFaceDirectory directory;
  std::shared_ptr<nn::Module> model;
  std::shared_ptr<fsdp::Unit> root;
  at::Tensor windows;
  at::Tensor own;
};

void expect_logits(RankOfVariant& rank, const json& variant) {
  const c10::NoGradGuard no_grad;
  const at::Tensor logits = (*rank.model)(RankOfVariant::inputs_of(rank.windows));
  for (size_t i = 0; i < variant.at("positions").size(); ++i) {
    const auto position = variant.at("positions").at(i).get<std::vector<int64_t>>();
    for (int64_t j = 0; j < 8; ++j) {
      EXPECT_NEAR(logits[position[0]][position[1]][j].item<double>(),
                  variant.at("first_8").at(i).at(static_cast<size_t>(j)).get<double>(), 2e-5)
          << "at " << position[0] << ", " << position[1];
    }
  }
}

void expect_gradients(RankOfVariant& rank, const json& variant) {
  const json& norms = variant.at("grad_norms");
  size_t checked = 0;
  for (const fsdp::ShardedParam* param : rank.root->parameters()) {
    if (!norms.contains(param->name())) {  // an encoder's, without images
      EXPECT_FALSE(fsdp::full_gradient(*rank.root, *param).defined()) << param->name();
      continue;
    }
    const auto expected = norms.at(param->name()).get<double>();
    const at::Tensor gradient = fsdp::full_gradient(*rank.root, *param);
    EXPECT_NEAR(gradient.to(at::kDouble).norm().item<double>(), expected, 2e-6 + 2e-5 * expected)
        << param->name();
    ++checked;
  }
  EXPECT_EQ(checked, norms.size());
}

// The models themselves are compared by other tests.
TEST(Variants, AreThreeConfigurationsOfEachModelTypeAtLeast) {
  std::map<std::string, int> counts;
  for (const std::string& type : models::model_types()) {
    counts[type] = 0;
  }
  for (const char* folder : {"tests/parity/golden/models", "tests/parity/vision_language"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_directory()) {
        ++counts.at(config_of(entry.path().filename()).at("model_type"));
      }
    }
  }
  for (const json& variant : read_variants()) {
    ++counts.at(config_of_variant(variant).at("model_type"));
  }
  std::ifstream encoders("tests/parity/encoder/encoder.json");  // which transformers does not have
  for (const json& record : json::parse(encoders)) {
    ++counts.at(record.at("config").at("model_type"));
  }
  for (const auto& [type, count] : counts) {
    EXPECT_GE(count, 3) << type << ": make_variants.py makes more";
  }
}

class VariantsOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(VariantsOnRanks, EqualThoseOfTransformers) {
  for (const json& variant : read_variants()) {
    SCOPED_TRACE(variant.at("name").get<std::string>());
    run_ranks(GetParam(), [&](const std::shared_ptr<World>& world) {
      RankOfVariant rank(world, variant);
      expect_logits(rank, variant);
      const at::Tensor loss =
          (*rank.model)({RankOfVariant::inputs_of(rank.own), RankOfVariant::labels_of(rank.own)})
              .toTensor();
      loss.backward();
      expect_gradients(rank, variant);
      if (world->size() == 1) {
        EXPECT_NEAR(loss.item<double>(), variant.at("loss").get<double>(), 5e-6);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, VariantsOnRanks, ::testing::Values(1, 2),
                         [](const auto& tested) { return "x" + std::to_string(tested.param); });

}  // namespace
}  // namespace fsdp2
