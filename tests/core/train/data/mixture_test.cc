#include "core/train/data/mixture.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/train/data/data_loader.h"
#include "core/train/data/token_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;
using Weights = std::vector<double>;

class MixtureTest : public FileTest {
 protected:
  // Files with 5, 7, 9, ... windows of sequence length 1; window w of file f has input 100 f + w.
  std::shared_ptr<Mixture> mixture(const Weights& weights, DataOrder order = DataOrder::kFile,
                                   uint64_t seed = 3) const {
    std::vector<MixturePart> parts;
    for (size_t f = 0; f < weights.size(); ++f) {
      std::string bytes;
      for (size_t w = 0; w <= windows_of(f); ++w) {
        bytes += static_cast<char>((100 * f + w) & 0xFF);
        bytes += static_cast<char>((100 * f + w) >> 8);
      }
      const std::string name = std::to_string(f) + ".bin";
      parts.push_back({std::make_shared<TokenFile>(write(name, bytes), 65536), weights[f]});
    }
    return std::make_shared<Mixture>(std::move(parts), 1, order, seed);
  }
  static size_t windows_of(size_t file) { return 5 + 2 * file; }

  static DataLoader loader(const std::shared_ptr<Mixture>& mixture, int64_t rank,
                           int64_t world_size, int64_t read_ahead = 0) {
    DataLoaderOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.batch_size = 6 / world_size;
    options.sequence_length = 1;
    options.read_ahead = read_ahead;
    return {mixture, options};
  }
  // The inputs of `steps` steps over all ranks.
  static std::vector<int64_t> inputs(const std::shared_ptr<Mixture>& mixture, int64_t world_size,
                                     const DataPosition* from, int64_t steps) {
    std::vector<std::unique_ptr<DataLoader>> loaders;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      loaders.push_back(
          std::make_unique<DataLoader>(loader(mixture, rank, world_size, /*read_ahead=*/rank)));
      if (from != nullptr) {
        loaders.back()->seek(*from);
      }
    }
    std::vector<int64_t> all;
    for (int64_t step = 0; step < steps; ++step) {
      for (const auto& own : loaders) {
        const at::Tensor batch = own->next().inputs;
        all.insert(all.end(), batch.const_data_ptr<int64_t>(),
                   batch.const_data_ptr<int64_t>() + batch.numel());
      }
    }
    return all;
  }
  std::string error(const Weights& weights) const {
    const Error error = error_of([&] { mixture(weights); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
};

TEST_F(MixtureTest, SharesFollowTheWeightsToWithinAWindowAtEveryPlace) {
  const Weights weights = {0.5, 0.3, 0.15, 0.05};
  const auto all = mixture(weights);
  std::vector<double> counts(weights.size(), 0);
  for (int64_t i = 0; i < 2 * Mixture::kCycle; ++i) {
    counts[all->draw(i).part] += 1;
    for (size_t f = 0; f < weights.size(); ++f) {
      ASSERT_LT(std::abs(counts[f] - weights[f] * static_cast<double>(i + 1)), 2.0) << i;
    }
  }
}

// Through 100000 draws, which are more than a cycle: no window is left out or comes early.
TEST_F(MixtureTest, EachSourceHasEpochsOfItsOwn) {
  for (const DataOrder order : {DataOrder::kFile, DataOrder::kShuffle}) {
    const auto all = mixture({3, 1}, order);
    std::vector<std::vector<int64_t>> taken(2);
    for (int64_t i = 0; i < 100000; ++i) {
      const Mixture::Draw draw = all->draw(i);
      EXPECT_EQ(draw.epoch, static_cast<int64_t>(taken[draw.part].size() / windows_of(draw.part)));
      taken[draw.part].push_back(draw.window);
    }
    for (size_t f = 0; f < 2; ++f) {
      const size_t count = windows_of(f);
      for (size_t first = 0; first + count <= taken[f].size(); first += count) {
        const auto begin = taken[f].begin() + static_cast<std::ptrdiff_t>(first);
        ASSERT_EQ(std::set<int64_t>(begin, begin + static_cast<std::ptrdiff_t>(count)).size(),
                  count);
      }
    }
  }
}

TEST_F(MixtureTest, FollowsFromItsSeed) {
  const auto draws = [](const Mixture& mixture) {
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < 40; ++i) {
      windows.push_back(mixture.draw(i).window);
    }
    return windows;
  };
  const auto first = draws(*mixture({1, 1}, DataOrder::kShuffle, 1));
  EXPECT_EQ(first, draws(*mixture({2, 2}, DataOrder::kShuffle, 1)));
  EXPECT_NE(first, draws(*mixture({1, 1}, DataOrder::kShuffle, 2)));
}

TEST_F(MixtureTest, GoesOnWithAnotherWorldSize) {
  const auto all = mixture({0.7, 0.3}, DataOrder::kShuffle);
  const std::vector<int64_t> expected = inputs(all, 1, nullptr, 30);
  DataLoader stopped = loader(all, 1, 2, /*read_ahead=*/3);
  for (int step = 0; step < 11; ++step) {
    stopped.next();
  }
  const DataPosition position = stopped.position();
  EXPECT_EQ(position.steps, 11);
  for (const int64_t world_size : {1, 2, 3, 6}) {
    EXPECT_EQ(inputs(all, world_size, nullptr, 30), expected) << world_size;
    const std::vector<int64_t> rest(expected.begin() + 11 * 6, expected.end());
    EXPECT_EQ(inputs(all, world_size, &position, 19), rest) << world_size;
  }
}

TEST_F(MixtureTest, DoesNotGoOnWhereFilesOrWeightsOrSeedDiffer) {
  const DataPosition position = loader(mixture({0.7, 0.3}, DataOrder::kShuffle), 0, 1).position();
  for (const auto& other : {mixture({0.6, 0.4}, DataOrder::kShuffle),
                            mixture({0.7, 0.3}, DataOrder::kShuffle, 4), mixture({0.7, 0.3})}) {
    const Error error = error_of([&] { loader(other, 0, 1).seek(position); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("the position is for [mixture 5x45875 7x19661 seed 3]"));
  }
}

TEST_F(MixtureTest, EpochIsAsManyStepsAsItsFilesFill) {
  EXPECT_EQ(loader(mixture({0.9, 0.1}), 0, 1).steps_per_epoch(), 2);  // 5 + 7 windows, 6 a step
}

TEST_F(MixtureTest, RefusesWeightsThatAreNone) {
  EXPECT_THAT(error({}), HasSubstr("expected 1 to 256 files, found 0"));
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error({1.0, bad}), HasSubstr("1.bin: its weight is ")) << bad;
  }
  EXPECT_THAT(error({1e308, 1e308}), HasSubstr("overflow"));
  EXPECT_THAT(error({1.0, 1e-6}), HasSubstr("less than a 65536th of all weights"));
}

}  // namespace
}  // namespace fsdp2::train
