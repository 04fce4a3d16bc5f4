#include "core/ckpt/value/chunked_tensor.h"

#include <gtest/gtest.h>

#include <string>

#include "core/ckpt/value/state_path.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {
namespace {

TEST(ChunkedTensorTest, ChunksThatFillTheTensorCoverIt) {
  ChunkedTensor tensor{at::kFloat, {4, 3}, {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}};
  EXPECT_EQ(find_fault(tensor), "");
  EXPECT_TRUE(covers(tensor));
  tensor.chunks.pop_back();
  EXPECT_EQ(find_fault(tensor), "");
  EXPECT_FALSE(covers(tensor));
}

TEST(ChunkedTensorTest, FaultSaysWhichChunkIsWrong) {
  EXPECT_EQ(find_fault({at::kFloat, {4}, {{{3}, {2}}}}),
            "has a chunk [2] at [3] outside its shape [4]");
  EXPECT_EQ(find_fault({at::kFloat, {4}, {{{0}, {3}}, {{2}, {2}}}}),
            "has chunks that overlap: [3] at [0] and [2] at [2]");
  EXPECT_EQ(find_fault({at::kFloat, {-1}, {}}),
            "has a shape of [-1], which is too large or negative");
}

TEST(TensorSpecTest, BytesThatDoNotFitAreNegative) {
  EXPECT_EQ(tensor_bytes(at::kBFloat16, {3, 5}), 30);
  EXPECT_EQ(tensor_bytes(at::kFloat, {0, int64_t{1} << 40}), 0);
  EXPECT_EQ(tensor_bytes(at::kFloat, {int64_t{1} << 40, int64_t{1} << 40}), -1);
}

TEST(StatePathTest, NameIsThePartsJoinedByDots) {
  EXPECT_EQ(name_of({"optim", "param_groups", int64_t{0}, "lr"}), "optim.param_groups.0.lr");
}

}  // namespace
}  // namespace fsdp2::ckpt
