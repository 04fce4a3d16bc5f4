// Answers to prompts with images, against what transformers makes of them.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/language_model.h"
#include "core/train/infer/generate.h"
#include "tests/parity/vision_language/vision_case.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using ::testing::HasSubstr;

std::vector<at::Tensor> tensors_of(const nn::Values& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    tensors.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  }
  return tensors;
}

class Generation : public ::testing::TestWithParam<std::string> {
 protected:
  Generation() {
    std::ifstream file(vision_directory(GetParam()) + "-generations.json");
    const nlohmann::json golden = nlohmann::json::parse(file);
    prompts_ = golden.at("prompts").get<train::TokenRows>();
    made_ = golden.at("made").get<train::TokenRows>();
  }

  // Greedy, with the images of these rows.
  train::GenerateOptions options(const nn::Module& model, int64_t first, int64_t count) const {
    train::GenerateOptions options;
    options.max_new_tokens = static_cast<int64_t>(made_.front().size());
    options.sampler.temperature = 0;
    options.first_row = first;
    if (count > 0) {
      options.vision =
          tensors_of(models::language_model(model, "a test")
                         .images_of_rows(VisionCase(GetParam(), "images").inputs, first, count));
    }
    return options;
  }

  // As one rank, on one thread.
  train::TokenRows generate(const train::GenerateOptions& options) {
    train::TokenRows made;
    run_ranks(1, [&](const std::shared_ptr<World>&) {
      check_generation(*whole_, prompts_, options);
      made = train::generate(*whole_, prompts_, options);
    });
    return made;
  }

  std::string refusal(const train::TokenRows& prompts, const train::GenerateOptions& options) {
    return message_of_error([&] { check_generation(*whole_, prompts, options); },
                            Code::kInvalidArgument);
  }

  const std::shared_ptr<nn::Module> whole_ = load_vision_model(GetParam());
  train::TokenRows prompts_;  // with two images, none, one, none
  train::TokenRows made_;
};

TEST_P(Generation, OfPromptsWithSeveralImagesOneAndNoneEqualsTransformers) {
  EXPECT_EQ(generate(options(*whole_, 0, 4)), made_);
}

TEST_P(Generation, OfRowsThatEndEarlyLeavesTheImagesOfTheOthersInPlace) {
  train::GenerateOptions all = options(*whole_, 0, 4);
  all.stop_tokens = {made_[0][1]};
  const train::TokenRows made = generate(all);
  for (size_t row = 0; row < made.size(); ++row) {
    const auto end = std::find(made_[row].begin(), made_[row].end(), made_[0][1]);
    const auto last = end == made_[row].end() ? end : end + 1;
    EXPECT_EQ(made[row], std::vector<int64_t>(made_[row].begin(), last)) << row;
  }
}

TEST_P(Generation, OverRanksOfWhichSomeHaveNoImageEqualsTransformers) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const auto model = build_vision_model(GetParam());
      const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, ranks), {},
                                                  model->no_split_kinds());
      ckpt::HuggingFaceDirectory source(vision_directory(GetParam()));
      fsdp::load_parameters(*root, source);
      const int64_t first = 4 * world->rank() / ranks;
      const int64_t end = 4 * (world->rank() + 1) / ranks;
      const auto mine = [&](const train::TokenRows& rows) {
        return train::TokenRows(rows.begin() + first, rows.begin() + end);
      };
      const train::GenerateOptions own = options(*model, first, end - first);
      check_generation(*model, mine(prompts_), own);
      EXPECT_EQ(train::generate(*model, mine(prompts_), own), mine(made_));
    });
  }
}

TEST_P(Generation, NeverDrawsATokenThatAnImageStandsInFor) {
  train::GenerateOptions hot = options(*whole_, 0, 4);
  hot.max_new_tokens = 40;
  hot.sampler.temperature = 50;
  const std::vector<int64_t> seen = models::language_model(*whole_, "a test").vision_tokens();
  for (const std::vector<int64_t>& row : generate(hot)) {
    for (const int64_t token : row) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), token), 0) << token;
    }
  }
}

TEST_P(Generation, NamesWhatIsWrongWithTheImages) {
  const train::GenerateOptions all = options(*whole_, 0, 4);
  EXPECT_THAT(refusal(prompts_, options(*whole_, 0, 0)),
              HasSubstr("image_grid_thw: expected grids for the tokens 8"));
  EXPECT_THAT(refusal({prompts_[0]}, all), HasSubstr("found those of the first 2 only"));
  EXPECT_THAT(refusal({}, all), HasSubstr("expected a prompt that has them, found no prompt"));
  train::GenerateOptions changed = all;
  changed.vision.resize(7);
  EXPECT_THAT(refusal(prompts_, changed), HasSubstr("inputs of images and videos, found 7"));
  changed = all;
  changed.vision[1] = at::Tensor();
  EXPECT_THAT(refusal(prompts_, changed), HasSubstr("got pixel_values without image_grid_thw"));
  changed = all;
  changed.max_new_tokens = 103;
  EXPECT_THAT(refusal(prompts_, changed),
              HasSubstr("prompt 0 has images, and 26 tokens: expected at most 128 with "
                        "max_new_tokens (103), the positions of the model"));
}

INSTANTIATE_TEST_SUITE_P(Models, Generation, ::testing::ValuesIn(kVisionModels),
                         [](const auto& tested) {
                           return std::string(tested.param == "tiny-qwen3-vl" ? "Qwen3"
                                                                              : "Qwen2_5");
                         });

}  // namespace
}  // namespace fsdp2
