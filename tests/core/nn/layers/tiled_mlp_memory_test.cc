// What MLPs in tiles hold in a step, beside whole ones.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/tiled_mlp.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/live_bytes.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kIntermediate = 512;
constexpr int64_t kTokens = 4096;
constexpr int64_t kLayers = 4;
constexpr int64_t kHiddenBytes = kTokens * kHidden * int64_t{sizeof(float)};
constexpr int64_t kInnerBytes = kTokens * kIntermediate * int64_t{sizeof(float)};

// MLPs in a row, whose gradients have their memory already, as in all but the first micro-batch.
class TiledMlpMemory : public ::testing::Test {
 protected:
  TiledMlpMemory() {
    set_product_engine(ProductEngine::kMkl);  // oneDNN wants LibTorch's own allocator
    live_bytes();
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      mlps_.push_back(std::make_shared<GatedMlp>("TestMLP", kHidden, kIntermediate,
                                                 /*has_bias=*/false, at::kFloat));
      SeededInit source(static_cast<uint64_t>(layer));
      materialize(*mlps_.back(), source);
    }
    peak_of_step(0);
  }

  int64_t peak_of_step(int64_t tiles) {
    const at::Tensor x = random_leaf({kTokens, kHidden}, 1);
    const int64_t before = live_bytes();
    const PeakBytes peak;
    at::Tensor y = x;
    for (const auto& mlp : mlps_) {
      mlp->set_tiles(tiles);
      y = (*mlp)(y);
    }
    y.sum().backward();
    return peak.get() - before;
  }

  std::vector<std::shared_ptr<GatedMlp>> mlps_;
};

// Whole, each layer keeps gate, up and their product. In tiles it keeps its input alone, and a
// tile's worth of six inner tensors exists once.
TEST_F(TiledMlpMemory, IsThatOfOneTileBesideTheInputs) {
  const int64_t whole = peak_of_step(0);
  EXPECT_GE(whole, kLayers * (kHiddenBytes + 3 * kInnerBytes));
  for (const int64_t tiles : {4, 16}) {
    const int64_t tiled = peak_of_step(tiles);
    RecordProperty("tiles_" + std::to_string(tiles) + "_of_whole",
                   std::to_string(static_cast<double>(tiled) / static_cast<double>(whole)));
    constexpr int64_t kWeightBytes = 3 * kHidden * kIntermediate * int64_t{sizeof(float)};
    EXPECT_LE(tiled, (kLayers + 4) * kHiddenBytes + 6 * kInnerBytes / tiles + 2 * kWeightBytes)
        << tiles;
    EXPECT_LE(tiled * 2, whole) << tiles;
  }
}

}  // namespace
}  // namespace fsdp2::nn
