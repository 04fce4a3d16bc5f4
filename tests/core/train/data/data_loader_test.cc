#include "core/train/data/data_loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/train/data/token_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using Windows = std::vector<int64_t>;

class DataLoaderTest : public FileTest {
 protected:
  // A file with exactly `windows` windows of sequence length 1, whose window w has input w.
  std::shared_ptr<TokenFile> windows(int64_t windows) const {
    std::string bytes;
    for (int64_t i = 0; i <= windows; ++i) {
      bytes += static_cast<char>(i & 0xFF);
      bytes += static_cast<char>(i >> 8);
    }
    return std::make_shared<TokenFile>(write("t.bin", bytes), 65536);
  }

  static DataLoaderOptions options(int64_t rank, int64_t world_size, int64_t accumulation_steps,
                                   int64_t global_batch, DataOrder order = DataOrder::kFile) {
    DataLoaderOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.accumulation_steps = accumulation_steps;
    options.batch_size = micro_batch_size(global_batch, world_size, accumulation_steps);
    options.sequence_length = 1;
    options.order = order;
    options.seed = 7;
    return options;
  }

  static Windows next(DataLoader& loader) {
    const Windows announced = loader.next_windows();
    const at::Tensor inputs = loader.next().inputs;
    const auto* data = inputs.const_data_ptr<int64_t>();
    const Windows read(data, data + inputs.numel());
    EXPECT_EQ(read, announced);
    return read;
  }

  static Windows take(DataLoader& loader, int64_t batches) {
    Windows taken;
    for (int64_t i = 0; i < batches; ++i) {
      const Windows batch = next(loader);
      taken.insert(taken.end(), batch.begin(), batch.end());
    }
    return taken;
  }

  // The windows of `steps` steps over all ranks, each step's in ascending order of micro step and
  // rank.
  static Windows global(const std::shared_ptr<TokenFile>& tokens, int64_t world_size,
                        int64_t accumulation_steps, int64_t global_batch, int64_t steps,
                        DataOrder order, LastStep last_step = LastStep::kPad) {
    std::vector<std::unique_ptr<DataLoader>> loaders;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      DataLoaderOptions own = options(rank, world_size, accumulation_steps, global_batch, order);
      own.last_step = last_step;
      loaders.push_back(std::make_unique<DataLoader>(tokens, own));
    }
    Windows all;
    for (int64_t micro = 0; micro < steps * accumulation_steps; ++micro) {
      for (const auto& loader : loaders) {
        const Windows own = next(*loader);
        all.insert(all.end(), own.begin(), own.end());
      }
    }
    return all;
  }
};

TEST_F(DataLoaderTest, FileOrderIsTheReferencesRule) {
  // micro_batch_windows(step, micro, rank, world=2, accum=2, global_batch=8, count=60) of the
  // Python reference, at steps 0 and 7, where 60 windows wrap inside the step.
  const auto tokens = windows(60);
  DataLoader first(tokens, options(0, 2, 2, 8));
  DataLoader second(tokens, options(1, 2, 2, 8));
  EXPECT_EQ(next(first), (Windows{0, 1}));
  EXPECT_EQ(next(second), (Windows{2, 3}));
  EXPECT_EQ(next(first), (Windows{4, 5}));
  EXPECT_EQ(next(second), (Windows{6, 7}));
  take(first, 12);
  take(second, 12);
  EXPECT_EQ(next(first), (Windows{56, 57}));
  EXPECT_EQ(next(second), (Windows{58, 59}));
  EXPECT_EQ(next(first), (Windows{0, 1}));
  EXPECT_EQ(next(second), (Windows{2, 3}));
}

TEST_F(DataLoaderTest, BatchMayWrapInsideARank) {
  DataLoader loader(windows(5), options(0, 1, 1, 4));
  EXPECT_EQ(next(loader), (Windows{0, 1, 2, 3}));
  EXPECT_EQ(next(loader), (Windows{4, 0, 1, 2}));
}

TEST_F(DataLoaderTest, StepMayBeLargerThanTheFile) {
  DataLoader loader(windows(3), options(1, 2, 1, 10));
  EXPECT_EQ(next(loader), (Windows{2, 0, 1, 2, 0}));
  EXPECT_EQ(next(loader), (Windows{0, 1, 2, 0, 1}));
}

TEST_F(DataLoaderTest, GlobalBatchIsTheSameForEveryWorldSizeAndAccumulation) {
  const auto tokens = windows(50);
  for (const DataOrder order : {DataOrder::kFile, DataOrder::kShuffle}) {
    const Windows expected = global(tokens, 1, 1, 24, 10, order);
    for (const int64_t world_size : {1, 2, 3, 4}) {
      for (const int64_t accumulation_steps : {1, 2}) {
        EXPECT_EQ(global(tokens, world_size, accumulation_steps, 24, 10, order), expected)
            << world_size << " ranks, " << accumulation_steps << " micro steps";
      }
    }
  }
}

TEST_F(DataLoaderTest, BatchHasInputsAndLabels) {
  DataLoader loader(windows(9), options(0, 1, 1, 3));
  const TokenBatch batch = loader.next();
  EXPECT_TRUE(batch.inputs.equal(at::tensor({0, 1, 2}, at::kLong).view({3, 1})));
  EXPECT_TRUE(batch.labels.equal(at::tensor({1, 2, 3}, at::kLong).view({3, 1})));
}

TEST_F(DataLoaderTest, EpochIsAPermutationForAnyNumberOfWindows) {
  for (const int64_t count : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000}) {
    Windows epoch = global(windows(count), 1, 1, count, 1, DataOrder::kShuffle);
    std::sort(epoch.begin(), epoch.end());
    Windows all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(epoch, all);
  }
}

TEST_F(DataLoaderTest, ShuffleNeverChanges) {
  // What a checkpoint of an earlier version resumes with; not to be updated.
  EXPECT_EQ(global(windows(10), 1, 1, 10, 2, DataOrder::kShuffle),
            (Windows{2, 7, 1, 3, 4, 0, 8, 5, 6, 9, 7, 2, 1, 9, 4, 0, 3, 5, 6, 8}));
}

TEST_F(DataLoaderTest, EpochsAndSeedsAreShuffledDifferently) {
  const auto tokens = windows(100);
  std::set<Windows> orders;
  for (const uint64_t seed : {0, 1, 2}) {
    DataLoaderOptions own = options(0, 1, 1, 100, DataOrder::kShuffle);
    own.seed = seed;
    DataLoader loader(tokens, own);
    for (int epoch = 0; epoch < 3; ++epoch) {
      orders.insert(next(loader));
    }
  }
  EXPECT_EQ(orders.size(), 9U);
}

TEST_F(DataLoaderTest, ShuffleSpreadsEveryWindowOverTheWholeEpoch) {
  // Over many epochs the place of a window is uniform: mean 49.5, here within 5 standard errors.
  constexpr int kEpochs = 400;
  const auto tokens = windows(100);
  DataLoader loader(tokens, options(0, 1, 1, 100, DataOrder::kShuffle));
  std::vector<double> mean(100, 0.0);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Windows order = next(loader);
    for (size_t place = 0; place < order.size(); ++place) {
      mean[static_cast<size_t>(order[place])] += static_cast<double>(place) / kEpochs;
    }
  }
  for (const double place : mean) {
    EXPECT_NEAR(place, 49.5, 5 * 28.9 / 20);
  }
}

TEST_F(DataLoaderTest, PaddedEpochTakesItsFirstWindowsAgain) {
  const auto tokens = windows(10);
  const Windows taken = global(tokens, 2, 1, 4, 3, DataOrder::kShuffle);
  const Windows epoch(taken.begin(), taken.begin() + 10);
  EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 10U);
  EXPECT_EQ(Windows(taken.begin() + 10, taken.end()), (Windows{epoch[0], epoch[1]}));
  EXPECT_EQ(DataLoader(tokens, options(0, 2, 1, 4, DataOrder::kShuffle)).steps_per_epoch(), 3);
}

TEST_F(DataLoaderTest, EpochThatDropsItsLastStepStartsTheNextEarlier) {
  const auto tokens = windows(10);
  const Windows whole = global(tokens, 1, 1, 10, 2, DataOrder::kShuffle);
  const Windows taken = global(tokens, 2, 1, 4, 3, DataOrder::kShuffle, LastStep::kDrop);
  EXPECT_EQ(Windows(taken.begin(), taken.begin() + 8), Windows(whole.begin(), whole.begin() + 8));
  EXPECT_EQ(Windows(taken.begin() + 8, taken.end()),
            Windows(whole.begin() + 10, whole.begin() + 14));
}

TEST_F(DataLoaderTest, DroppingNothingIsTheSameAsPaddingNothing) {
  const auto tokens = windows(12);
  EXPECT_EQ(global(tokens, 2, 1, 4, 6, DataOrder::kShuffle, LastStep::kDrop),
            global(tokens, 2, 1, 4, 6, DataOrder::kShuffle, LastStep::kPad));
}

TEST_F(DataLoaderTest, SeekGoesOnBitForBit) {
  const auto tokens = windows(23);
  for (const DataOrder order : {DataOrder::kFile, DataOrder::kShuffle}) {
    DataLoader loader(tokens, options(1, 2, 1, 4, order));
    take(loader, 9);
    const DataPosition position = loader.position();
    const Windows expected = take(loader, 20);
    DataLoader resumed(tokens, options(1, 2, 1, 4, order));
    resumed.seek(position);
    EXPECT_TRUE(resumed.position() == position);
    EXPECT_EQ(take(resumed, 20), expected);
  }
}

TEST_F(DataLoaderTest, SeekCrossesWorldSizes) {
  const auto tokens = windows(50);
  const Windows whole = global(tokens, 1, 1, 12, 8, DataOrder::kShuffle);
  DataLoader four(tokens, options(3, 4, 1, 12, DataOrder::kShuffle));
  take(four, 5);
  DataLoader one(tokens, options(0, 1, 1, 12, DataOrder::kShuffle));
  one.seek(four.position());
  EXPECT_EQ(take(one, 3), Windows(whole.begin() + 5 * 12, whole.end()));
}

TEST_F(DataLoaderTest, SeekCrossesGlobalBatchesWithoutRepeatingWindows) {
  const auto tokens = windows(48);
  DataLoader small(tokens, options(0, 1, 1, 4, DataOrder::kShuffle));
  Windows epoch = take(small, 6);
  DataLoader large(tokens, options(0, 1, 1, 24, DataOrder::kShuffle));
  large.seek(small.position());
  const Windows rest = take(large, 1);
  epoch.insert(epoch.end(), rest.begin(), rest.end());
  EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 48U);
  EXPECT_EQ(large.position().epoch, 1);
}

TEST_F(DataLoaderTest, SeekPastAShorterEpochStartsTheNext) {
  const auto tokens = windows(10);
  DataLoader loader(tokens, options(0, 1, 1, 4, DataOrder::kShuffle));
  take(loader, 2);
  DataLoaderOptions dropping = options(0, 1, 1, 7, DataOrder::kShuffle);
  dropping.last_step = LastStep::kDrop;
  DataLoader resumed(tokens, dropping);
  resumed.seek(loader.position());
  EXPECT_EQ(resumed.position().epoch, 1);
  EXPECT_EQ(resumed.position().window, 0);
}

TEST_F(DataLoaderTest, WholeStepsAreCountedOnFromASeek) {
  const auto tokens = windows(50);
  DataLoader loader(tokens, options(0, 1, 2, 4));
  take(loader, 5);
  EXPECT_EQ(loader.steps(), 2);
  DataLoader resumed(tokens, options(0, 1, 2, 4));
  resumed.seek(loader.position());
  EXPECT_EQ(resumed.steps(), 2);
  take(resumed, 2);
  EXPECT_EQ(resumed.steps(), 3);
  resumed.seek_step(7);
  EXPECT_EQ(resumed.steps(), 7);
}

TEST_F(DataLoaderTest, SeekStepIsWhereARunIsBeforeThatStep) {
  const auto tokens = windows(50);
  for (const DataOrder order : {DataOrder::kFile, DataOrder::kShuffle}) {
    const Windows whole = global(tokens, 1, 1, 12, 9, order);
    DataLoader loader(tokens, options(0, 1, 2, 12, order));
    loader.seek_step(7);
    EXPECT_EQ(take(loader, 4), Windows(whole.begin() + 7 * 12, whole.end()));
  }
}

TEST_F(DataLoaderTest, SeekIntoOtherDataIsRefused) {
  const DataPosition position = DataLoader(windows(10), options(0, 1, 1, 2)).position();
  DataLoader other(windows(11), options(0, 1, 1, 2));
  EXPECT_ERROR(other.seek(position), Code::kInvalidArgument,
               "has 11 windows of sequence length 1, the position is for 10 of 1");
}

TEST_F(DataLoaderTest, SeekToANegativePositionIsRefused) {
  DataLoader loader(windows(10), options(0, 1, 1, 2));
  DataPosition position = loader.position();
  position.window = -1;
  EXPECT_ERROR(loader.seek(position), Code::kInvalidArgument, "no position epoch 0, window -1");
  position = {-1, 0, 10, 1};
  EXPECT_ERROR(loader.seek(position), Code::kInvalidArgument, "no position epoch -1");
  EXPECT_ERROR(loader.seek_step(-1), Code::kInvalidArgument, "found -1");
}

TEST_F(DataLoaderTest, StaysInPlaceWhenTheBatchHasAnError) {
  const std::string bytes("\1\0\2\0\3\0\x65\0\4\0", 10);
  const auto tokens = std::make_shared<TokenFile>(write("t.bin", bytes), 100);
  DataLoader loader(tokens, options(0, 1, 1, 2));
  take(loader, 0);
  loader.next_windows();
  EXPECT_EQ(loader.next().inputs.size(0), 2);
  const DataPosition position = loader.position();
  EXPECT_ERROR(loader.next(), Code::kCorruptData, "token 101 at position 3");
  EXPECT_TRUE(loader.position() == position);
}

TEST_F(DataLoaderTest, OptionsOutOfRangeAreRefused) {
  const auto tokens = windows(10);
  const auto refuses = [&](const DataLoaderOptions& bad, const char* message) {
    EXPECT_ERROR((DataLoader{tokens, bad}), Code::kInvalidArgument, message);
  };
  DataLoaderOptions bad = options(0, 2, 1, 2);
  bad.rank = 2;
  refuses(bad, "rank 2 is not in [0, 2)");
  bad = options(0, 1, 1, 1);
  bad.world_size = 0;
  refuses(bad, "world_size: expected a number in [1, 2147483648), found 0");
  bad = options(0, 1, 1, 1);
  bad.batch_size = 0;
  refuses(bad, "batch_size");
  bad = options(0, 1, 1, 1);
  bad.accumulation_steps = -1;
  refuses(bad, "accumulation_steps");
  bad = options(0, 1, 1, 1);
  bad.sequence_length = 0;
  refuses(bad, "sequence length 0 is not positive");
  bad.sequence_length = 11;
  refuses(bad, "has 11 tokens, one window of sequence length 11 needs 12");
}

TEST_F(DataLoaderTest, DroppingEverythingIsRefused) {
  DataLoaderOptions dropping = options(0, 1, 1, 11, DataOrder::kShuffle);
  dropping.last_step = LastStep::kDrop;
  EXPECT_ERROR((DataLoader{windows(10), dropping}), Code::kInvalidArgument,
               "has 10 windows of sequence length 1, a step takes 11: dropping");
}

TEST_F(DataLoaderTest, GlobalBatchMustDivide) {
  EXPECT_EQ(micro_batch_size(24, 3, 2), 4);
  EXPECT_ERROR(micro_batch_size(10, 2, 2), Code::kInvalidArgument,
               "global batch 10 is not a multiple of 2 ranks x 2 accumulation steps = 4");
  EXPECT_ERROR(micro_batch_size(0, 1, 1), Code::kInvalidArgument, "global batch: expected");
}

}  // namespace
}  // namespace fsdp2::train
