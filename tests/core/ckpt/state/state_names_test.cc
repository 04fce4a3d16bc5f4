#include "core/ckpt/state/state_names.h"

#include <gtest/gtest.h>

#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {
namespace {

// A checkpoint of a model of two parameters and a buffer, whose optimizer numbers its state.
class Numbered final : public StateSource {
 public:
  Numbered() : StateSource("numbered") {
    set_entries(
        {{"model.a", {"model", "a"}, at::kFloat, {2}, 0},
         {"model.b", {"model", "b"}, at::kFloat, {2}, 1},
         {"model.mean", {"model", "mean"}, at::kFloat, {2}, 2},
         {"optim.state.0.exp_avg", {"optim", "state", 0, "exp_avg"}, at::kFloat, {2}, 3},
         {"optim.state.1.exp_avg", {"optim", "state", 1, "exp_avg"}, at::kFloat, {2}, 4},
         {"optim.param_groups.0.params", {"optim", "param_groups", 0, "params"}, {}, {}, 5}});
  }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& /*out*/) const override {}
  PythonValue read_object(const StateEntry& /*entry*/) const override {
    return PythonList{{PythonValue(int64_t{0}), PythonValue(int64_t{1})}};
  }
  void verify() const override {}
};

TEST(StateNames, OptimizersNumberParametersAndNoBuffers) {
  const Numbered source;
  const StateNames names(source, {{{"mean"}, false, true}, {{"a"}}, {{"b"}, false}});
  ASSERT_NE(names.parameter(0), nullptr);
  EXPECT_EQ(names.parameter(0)->name, "model.mean");
  EXPECT_EQ(names.optimizer_state(0, "exp_avg"), nullptr);
  ASSERT_NE(names.optimizer_state(2, "exp_avg"), nullptr);
  EXPECT_EQ(names.optimizer_state(1, "exp_avg")->name, "optim.state.0.exp_avg");
  EXPECT_EQ(names.optimizer_state(2, "exp_avg")->name, "optim.state.1.exp_avg");
}

}  // namespace
}  // namespace fsdp2::ckpt
