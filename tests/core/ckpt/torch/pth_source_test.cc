// .pth files read box by box: every bit that is used was compared, and what the files of ranks say
// about one another is not believed.
#include "core/ckpt/torch/pth_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/base/few_descriptors.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

at::Tensor count_up(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).view(shape);
}

class PthSourceTest : public FileTest {
 protected:
  // A file with one tensor "w": `stored` elements, of which `view` is a view.
  std::string save(const StoredTensor& view, const at::Tensor& stored) const {
    return write("x.pth", write_torch_archive(PythonDict{{{"w", view}}}, {stored}));
  }

  // Flips a bit of the record's last element.
  std::string damaged(const std::string& file) const {
    const TorchArchive archive(file);
    StoredTensor first = *find(archive.root(), "w")->as<StoredTensor>();
    first.storage_offset = first.storage_numel - 1;
    std::string bytes = contents(file);
    bytes[static_cast<size_t>(archive.file_offset(first)) + 2] ^= 0x10;
    return write("damaged.pth", bytes);
  }

  static void read(const std::string& file, at::IntArrayRef begin, const at::Tensor& out) {
    const PthSource state(file, PthFiles::kOne);
    state.read(*state.find("w"), begin, out);
  }

  // What each rank holds of "w", in files of their own.
  struct Piece {
    std::vector<int64_t> shape;  // global
    std::vector<int64_t> offsets;
    at::Tensor values;
  };
  void write_ranks(const std::vector<Piece>& pieces) const {
    int rank = 0;
    for (const Piece& piece : pieces) {
      PythonDict shards{{{"w", describe_shard(piece.shape, piece.offsets)}}};
      const PythonValue own = describe_rank(rank, static_cast<int>(pieces.size()), shards);
      const StoredTensor w = describe_tensor(0, piece.values.scalar_type(), piece.values.sizes());
      write("ranks/" + per_rank_file_name(1, rank++),
            write_torch_archive(PythonDict{{{"w", w}, {"fsdp2", own}}}, {piece.values}));
    }
  }
  PthSource open_ranks() const { return {path("ranks"), PthFiles::kOnePerRank}; }
};

TEST_F(PthSourceTest, FlippedBitIsFoundWhateverItIsReadInto) {
  const at::Tensor stored = count_up({4, 6});
  const std::string file = save(describe_tensor(0, at::kFloat, {4, 6}), stored);
  const std::vector<std::pair<const char*, at::Tensor>> targets = {
      {"the same", at::empty({4, 6})},          {"another dtype", at::empty({4, 6}, at::kBFloat16)},
      {"other strides", at::empty({6, 4}).t()}, {"a part", at::empty({4, 2})},
      {"one element", at::empty({1, 1})},
  };
  const std::string bad = damaged(file);
  for (const auto& named : targets) {
    SCOPED_TRACE(named.first);
    const at::Tensor& target = named.second;
    const std::vector<int64_t> begin = {4 - target.size(0), 6 - target.size(1)};
    read(file, begin, target);
    EXPECT_TRUE(
        at::equal(target.to(at::kFloat),
                  stored.narrow(0, begin[0], target.size(0)).narrow(1, begin[1], target.size(1))));
    EXPECT_ERROR(read(bad, begin, target), Code::kCorruptData, "record data/0 is damaged");
  }
}

TEST_F(PthSourceTest, FlippedBitIsFoundUnderEveryView) {
  const at::Tensor stored = count_up({24});
  StoredTensor transposed = describe_tensor(0, at::kFloat, {24});
  transposed.shape = {6, 4};
  transposed.stride = {1, 6};
  StoredTensor middle = describe_tensor(0, at::kFloat, {24});
  middle.shape = {4};
  middle.stride = {1};
  middle.storage_offset = 20;
  for (const StoredTensor& view : {transposed, middle}) {
    const std::string file = save(view, stored);
    const at::Tensor out = at::empty(view.shape);
    const std::vector<int64_t> begin(view.shape.size(), 0);
    read(file, begin, out);
    EXPECT_TRUE(at::equal(out, stored.as_strided(view.shape, view.stride, view.storage_offset)));
    EXPECT_ERROR(read(damaged(file), begin, out), Code::kCorruptData, "data/0 is damaged");
  }
}

TEST_F(PthSourceTest, RanksTogetherHoldTheWhole) {
  const at::Tensor all = count_up({4, 3});
  write_ranks({{{4, 3}, {0, 0}, all.narrow(0, 0, 3)}, {{4, 3}, {3, 0}, all.narrow(0, 3, 1)}});
  const PthSource state = open_ranks();
  const at::Tensor out = at::empty({2, 2});
  state.read(*state.find("w"), {2, 1}, out);
  EXPECT_TRUE(at::equal(out, all.narrow(0, 2, 2).narrow(1, 1, 2)));
}

TEST_F(PthSourceTest, RanksMayBeMoreThanAProcessHasDescriptors) {
  const at::Tensor all = count_up({200, 3});
  std::vector<Piece> pieces;
  for (int64_t rank = 0; rank < 200; ++rank) {
    pieces.push_back({{200, 3}, {rank, 0}, all.narrow(0, rank, 1)});
  }
  write_ranks(pieces);
  const FewDescriptors few(64);
  const PthSource state = open_ranks();
  EXPECT_TRUE(at::equal(read_whole(state, *state.find("w")), all));
  EXPECT_NO_THROW(state.verify());
}

TEST_F(PthSourceTest, FileThatIsCutAfterOpeningIsAnError) {
  const at::Tensor all = count_up({40});
  std::vector<Piece> pieces;
  for (int64_t rank = 0; rank < 40; ++rank) {  // more than stay open
    pieces.push_back({{40}, {rank}, all.narrow(0, rank, 1)});
  }
  write_ranks(pieces);
  const PthSource state = open_ranks();
  const std::string first = path("ranks/" + per_rank_file_name(1, 0));
  std::filesystem::resize_file(first, std::filesystem::file_size(first) - 1);
  EXPECT_ERROR(read_whole(state, *state.find("w")), Code::kIo, "when it was opened and now has");
}

TEST_F(PthSourceTest, ReplicasOfARankMayBeThere) {
  const at::Tensor all = count_up({4});
  write_ranks({{{4}, {0}, all.narrow(0, 0, 2)},
               {{4}, {2}, all.narrow(0, 2, 2)},
               {{4}, {0}, all.narrow(0, 0, 2)},
               {{4}, {4}, all.narrow(0, 4, 0)}});
  const PthSource state = open_ranks();
  EXPECT_TRUE(at::equal(read_whole(state, *state.find("w")), all));
}

TEST_F(PthSourceTest, PiecesThatOverlapOrLeaveAHoleAreRefused) {
  const at::Tensor four = count_up({4});
  // The volumes add up to the whole.
  write_ranks({{{4}, {0}, four.narrow(0, 0, 3)}, {{4}, {1}, four.narrow(0, 0, 1)}});
  EXPECT_ERROR(open_ranks(), Code::kCorruptData, "overlap");
  write_ranks({{{4}, {0}, four.narrow(0, 0, 4)}, {{4}, {0}, four.narrow(0, 0, 2)}});
  EXPECT_ERROR(open_ranks(), Code::kCorruptData, "overlap");
  write_ranks({{{4}, {0}, four.narrow(0, 0, 2)}, {{4}, {3}, four.narrow(0, 0, 1)}});
  EXPECT_ERROR(open_ranks(), Code::kCorruptData, "do not hold all of w");
}

TEST_F(PthSourceTest, ShapeThatOverflowsIsRefused) {
  constexpr int64_t kHuge = int64_t{1} << 32;
  // 2^64 elements are 0 if they are counted without care.
  write_ranks({{{kHuge, kHuge}, {0, 0}, at::empty({0, 5})}});
  EXPECT_ERROR(open_ranks(), Code::kCorruptData, "too large");
  write_ranks({{{kHuge, kHuge}, {kHuge - 1, kHuge - 1}, count_up({1, 1})}});
  EXPECT_ERROR(open_ranks(), Code::kCorruptData, "too large");
}

TEST_F(PthSourceTest, FewElementsThatClaimToBeManyAreRefusedByName) {
  StoredTensor expanded = describe_tensor(0, at::kFloat, {1});
  expanded.shape = {int64_t{1} << 40};
  expanded.stride = {0};
  const std::string file = save(expanded, at::ones({1}));
  EXPECT_ERROR(PthSource(file, PthFiles::kOne), Code::kUnsupported,
               file + ": w is a tensor of [1099511627776] over 1 stored elements");
  expanded.shape = {1000};
  at::Tensor out = at::zeros({1000});
  read(save(expanded, at::ones({1})), {0}, out);
  EXPECT_TRUE(out.equal(at::ones({1000})));
}

}  // namespace
}  // namespace fsdp2::ckpt
