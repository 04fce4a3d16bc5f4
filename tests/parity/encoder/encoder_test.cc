// The encoder equals PyTorch's nn.TransformerEncoder between embeddings and a head: logits, loss
// and gradients of three configurations, which make_encoder.py records.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/text.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "core/nn/parameter_source.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using nlohmann::json;

json read_records() {
  std::ifstream file("tests/parity/encoder/encoder.json");
  return json::parse(file);
}

// make_encoder.py's value_of.
class Waves : public nn::ParameterSource {
 public:
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override {
    const c10::NoGradGuard no_grad;
    double phase = 0;
    for (const char letter : name) {
      phase += letter;
    }
    const int64_t before = first_row * c10::multiply_integers(shape.slice(1));
    const at::Tensor index = at::arange(before, before + out.numel(), at::kDouble);
    const at::Tensor waves = (index * index * 0.37 + phase).sin();
    const bool is_norm = name.find(".norm") != std::string::npos && ends_with(name, "weight");
    out.copy_((is_norm ? waves * 0.2 + 1 : waves * 0.15).to(at::kFloat).view(out.sizes()));
  }
};

at::Tensor rows_of(const json& numbers) {
  std::vector<at::Tensor> rows;
  for (const json& row : numbers) {
    rows.push_back(at::tensor(row.get<std::vector<int64_t>>(), at::kLong));
  }
  return at::stack(rows);
}

// A rank's part of a batch.
struct Part {
  at::Tensor tokens;
  at::Tensor targets;
  at::Tensor mask;  // undefined: none
};

Part part_of(const json& batch, int64_t first, int64_t count) {
  const auto own = [&](const char* key) {
    return rows_of(batch.at(key)).narrow(0, first, count).contiguous();
  };
  Part part{own("tokens"), own("targets"), at::Tensor()};
  if (batch.contains("is_token")) {
    part.mask = own("is_token");
  }
  if (batch.contains("cuts")) {
    const int64_t length = part.tokens.size(1);
    std::vector<int64_t> boundaries;
    for (int64_t row = 0; row < count; ++row) {
      const int64_t cut = batch.at("cuts").at(static_cast<size_t>(first + row));
      boundaries.insert(boundaries.end(), {row * length, row * length + cut});
    }
    boundaries.push_back(count * length);
    part.mask = at::tensor(boundaries, at::kLong);
  }
  return part;
}

struct Tolerance {
  double logit;
  double loss;
  double gradient;  // relative
};

void expect_logits(const at::Tensor& logits, const json& record, const json& expected,
                   const Tolerance& tolerance) {
  for (size_t i = 0; i < record.at("positions").size(); ++i) {
    const auto position = record.at("positions").at(i).get<std::vector<int64_t>>();
    const json& numbers = expected.at("first_8").at(i);
    for (size_t j = 0; j < numbers.size(); ++j) {
      EXPECT_NEAR(logits[position[0]][position[1]][static_cast<int64_t>(j)].item<double>(),
                  numbers.at(j).get<double>(), tolerance.logit)
          << "at " << position[0] << ", " << position[1];
    }
  }
}

void expect_gradients(fsdp::Unit& root, const json& norms, const Tolerance& tolerance) {
  EXPECT_EQ(root.parameters().size(), norms.size());
  for (const fsdp::ShardedParam* parameter : root.parameters()) {
    ASSERT_TRUE(norms.contains(parameter->name())) << parameter->name();
    const auto expected = norms.at(parameter->name()).get<double>();
    const at::Tensor gradient = fsdp::full_gradient(root, *parameter);
    EXPECT_NEAR(gradient.to(at::kDouble).norm().item<double>(), expected,
                tolerance.gradient * expected)
        << parameter->name();
  }
}

using Case = std::tuple<int, std::string>;  // world size, dtype

class Encoders : public ::testing::TestWithParam<Case> {};

TEST_P(Encoders, EqualPyTorchs) {
  const auto& [ranks, dtype] = GetParam();
  const bool is_bf16 = dtype == "bf16";
  const Tolerance tolerance = is_bf16 ? Tolerance{0.06, 3e-3, 0.02} : Tolerance{2e-5, 5e-6, 2e-5};
  const json records = read_records();
  EXPECT_EQ(records.size(), 3U);
  for (const json& record : records) {
    SCOPED_TRACE(record.at("name").get<std::string>());
    const json& expected = record.at(dtype);
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const auto model = models::build(record.at("config").dump());
      fsdp::Policy policy;
      if (is_bf16) {
        policy.mixed_precision.param_dtype = at::kBFloat16;
        policy.mixed_precision.reduce_dtype = at::kFloat;
      }
      const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, world->size()),
                                                  policy, model->no_split_kinds());
      Waves waves;
      fsdp::load_parameters(*root, waves);
      const json& batch = record.at("batch");
      const auto logits_of = [&](const Part& part) {
        return (*model)(nn::Values{part.tokens, {}, {}, part.mask}).toTensor();
      };
      {
        const c10::NoGradGuard no_grad;
        expect_logits(logits_of(part_of(batch, 0, 4)), record, expected, tolerance);
      }
      // Its part of the mean over the batch, as ranks may have more rows than others.
      const int64_t first = 4 * world->rank() / world->size();
      const Part own = part_of(batch, first, 4 * (world->rank() + 1) / world->size() - first);
      const int64_t targets = part_of(batch, 0, 4).targets.ne(-100).sum().item<int64_t>();
      const at::Tensor loss =
          at::cross_entropy_loss(logits_of(own).to(at::kFloat).flatten(0, 1), own.targets.flatten(),
                                 {}, at::Reduction::Sum) *
          (static_cast<double>(world->size()) / static_cast<double>(targets));
      loss.backward();
      expect_gradients(*root, expected.at("grad_norms"), tolerance);
      if (world->size() == 1) {
        EXPECT_NEAR(loss.item<double>(), expected.at("loss").get<double>(), tolerance.loss);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Encoders,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values("fp32", "bf16")),
                         [](const auto& tested) {
                           return std::get<1>(tested.param) + "_x" +
                                  std::to_string(std::get<0>(tested.param));
                         });

}  // namespace
}  // namespace fsdp2
