// Parameters of one module that another module's nodes read: loss = (x * part.w * part.w).sum(),
// where the root multiplies the second time.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/exported/exported_program.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/tree.h"
#include "core/nn/parameter_reads.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/program_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2::exported {
namespace {

class BorrowedParameter : public FileTest {
 protected:
  BorrowedParameter() {
    json second = file.node(0);
    second["inputs"][0]["arg"]["as_tensor"]["name"] = "mul";
    second["outputs"][0]["as_tensor"]["name"] = "mul_1";
    second["metadata"]["nn_module_stack"] = "r,,pkg.Whole";
    file.node(1)["inputs"][0]["arg"]["as_tensor"]["name"] = "mul_1";
    json& nodes = file.program["graph_module"]["graph"]["nodes"];
    nodes.insert(nodes.begin() + 1, second);
    path_ = write("m.pt2", file.bytes());
  }

  ExportedModel load() const { return load_exported(path_); }
  static std::shared_ptr<nn::Module> part_of(const nn::Module& root) {
    return root.child_modules().front().second;
  }

  ProgramFile file;
  std::string path_;
};

TEST_F(BorrowedParameter, IsTheReaders) {
  const ExportedModel model = load();
  const auto& root = dynamic_cast<const nn::ParameterBorrower&>(*model.module);
  ASSERT_EQ(root.borrowed_parameters().size(), 1U);
  EXPECT_TRUE(root.borrowed_parameters()[0].is_same(model.module->named_parameters()["part.w"]));
  const auto part = part_of(*model.module);
  EXPECT_TRUE(dynamic_cast<const nn::ParameterBorrower&>(*part).borrowed_parameters().empty());
}

TEST_F(BorrowedParameter, GoesToTheUnitAroundHolderAndReader) {
  run_ranks(2, [this](const std::shared_ptr<World>& world) {
    const ExportedModel model = load();
    const auto root =
        fsdp::fully_shard_by_kind(model.module, Mesh::for_fsdp(world, 2), {}, {"Part"});
    fsdp::load_parameters(*root, *model.values);
    EXPECT_EQ(root->units().size(), 1U);
    const at::Tensor x = at::ones({1, 2}, at::device(at::kCPU));
    EXPECT_EQ((*model.module)(x).item<float>(), 2 * 2 + 3 * 3);
  });
}

TEST_F(BorrowedParameter, CannotBeOfAUnitWithoutItsReader) {
  run_ranks(2, [this](const std::shared_ptr<World>& world) {
    const ExportedModel model = load();
    const auto mesh = Mesh::for_fsdp(world, 2);
    fsdp::fully_shard(part_of(*model.module), mesh, {});
    const auto root = fsdp::fully_shard(model.module, mesh, {});
    EXPECT_ERROR(root->tree(), Code::kInvalidArgument,
                 "the parameter part.w belongs to unit 'part', and the module '' outside of it "
                 "reads it, too");
  });
}

}  // namespace
}  // namespace fsdp2::exported
