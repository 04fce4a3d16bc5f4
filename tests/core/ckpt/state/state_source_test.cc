// What all sources have alike.
#include "core/ckpt/state/state_source.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

// A file that claims a tensor of more bytes than any machine has.
class Boaster final : public StateSource {
 public:
  Boaster() : StateSource("boast.pth") {
    set_entries({{"model.w", {"model", "w"}, at::kFloat, {int64_t{1} << 56}, 0}});
  }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& /*out*/) const override {}
  PythonValue read_object(const StateEntry& /*entry*/) const override { return {}; }
  void verify() const override {}
};

TEST(StateSource, TensorBeyondTheMemoryIsNamedWithItsFile) {
  const Boaster source;
  EXPECT_ERROR(read_whole(source, source.entries()[0]), Code::kOutOfMemory,
               "boast.pth: model.w: there is no memory for [72057594037927936] of Float");
}

}  // namespace
}  // namespace fsdp2::ckpt
