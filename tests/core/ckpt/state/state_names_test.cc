#include "core/ckpt/state/state_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/python_value.h"
#include "tests/core/base/file_fixture.h"

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

// Tensors of these names.
class Named final : public StateSource {
 public:
  explicit Named(const std::vector<std::string>& names) : StateSource("named") {
    std::vector<StateEntry> entries;
    for (const std::string& name : names) {
      entries.push_back({name, {name}, at::kFloat, {2}, entries.size()});
    }
    set_entries(std::move(entries));
  }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& /*out*/) const override {}
  PythonValue read_object(const StateEntry& /*entry*/) const override { return {}; }
  void verify() const override {}
};

// The names that a model of a, b and a tied c and d finds among these; "-" for none.
std::vector<std::string> found_among(const std::vector<std::string>& names) {
  const Named source(names);
  const StateNames found(source, {{{"a"}}, {{"b"}}, {{"c", "d"}}});
  std::vector<std::string> taken;
  for (size_t i = 0; i < 3; ++i) {
    const StateEntry* entry = found.parameter(i);
    taken.push_back(entry == nullptr ? "-" : entry->name);
  }
  return taken;
}

using Names = std::vector<std::string>;

TEST(StateNames, TheModelGoesBeforeItsAverageWhicheverHasANameMore) {
  EXPECT_EQ(found_among({"ema.a", "ema.b", "ema.c", "ema.d", "model.a", "model.b", "model.c"}),
            (Names{"model.a", "model.b", "model.c"}));
  EXPECT_EQ(found_among({"ema.a", "ema.b", "ema.c", "model.a", "model.b"}),
            (Names{"model.a", "model.b", "-"}));
  EXPECT_EQ(found_among({"a", "b", "c", "ema.a", "ema.b", "ema.c"}), (Names{"a", "b", "c"}));
}

TEST(StateNames, APrefixThatFitsMoreParametersIsTaken) {
  EXPECT_EQ(found_among({"net.a", "net.b", "net.c", "head.a"}), (Names{"net.a", "net.b", "net.c"}));
  EXPECT_EQ(found_among({"net.a", "net.b", "head.c", "head.d"}), (Names{"net.a", "net.b", "-"}));
}

TEST(StateNames, TwoModelsOfWhichNothingTellsTheOneThatIsMeantAreRefused) {
  EXPECT_ERROR(found_among({"ema.a", "ema.b", "net.a", "net.b"}), Code::kInvalidArgument,
               "named: expected one model, or one whose names begin with \"model.\", found several "
               "that fit equally well, with names that begin with \"ema.\", \"net.\": save the one "
               "that is meant in a file of its own");
}

TEST(StateNames, FlatParametersAreRefusedByName) {
  EXPECT_ERROR(found_among({"model._flat_param", "model.layers.0._flat_param"}), Code::kUnsupported,
               "named: model._flat_param is a flat parameter of FSDP1, which does not tell the "
               "model's own in it: save with StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT");
}

TEST(StateNames, OfTwoOptimizersTheUsualOneIsTakenAndElseNone) {
  const Named two({"model.a", "actor.state.a.exp_avg", "critic.state.a.exp_avg"});
  const StateNames of_two(two, {{{"a"}}});
  EXPECT_EQ(of_two.parameter(0)->name, "model.a");
  EXPECT_EQ(of_two.optimizer_state(0, "exp_avg"), nullptr);
  EXPECT_ERROR(of_two.check_one_optimizer(), Code::kInvalidArgument,
               "named: expected one optimizer, or one whose names begin with \"optim.\", found "
               "several that fit equally well, with names that begin with \"actor.\", \"critic.\"");
  const Named usual({"model.a", "actor.state.a.exp_avg", "optim.state.a.exp_avg"});
  const StateNames of_usual(usual, {{{"a"}}});
  of_usual.check_one_optimizer();
  EXPECT_EQ(of_usual.optimizer_state(0, "exp_avg")->name, "optim.state.a.exp_avg");
}

TEST(StateNames, AnOptimizerMayNameParametersAsTheModuleAroundTheModel) {
  const Named source({"state_dict.model.a", "state_dict.model.b",
                      "optimizer_0.state.model.a.exp_avg", "optimizer_0.state.model.x.exp_avg",
                      "optimizer_0.state.b.exp_avg"});
  const StateNames names(source, {{{"a"}}, {{"b"}}});
  EXPECT_EQ(names.parameter(0)->name, "state_dict.model.a");
  // Exactly a parameter's name goes before one in a module.
  EXPECT_EQ(names.owner_prefix(), "");
  const Named wrapped({"state_dict.model.a", "state_dict.model.b",
                       "optimizer_0.state.model.a.exp_avg", "optimizer_0.state.model.x.exp_avg"});
  const StateNames of_wrapped(wrapped, {{{"a"}}, {{"b"}}});
  EXPECT_EQ(of_wrapped.owner_prefix(), "model.");
  EXPECT_EQ(of_wrapped.optimizer_prefix(), "optimizer_0.");
  ASSERT_NE(of_wrapped.optimizer_state(0, "exp_avg"), nullptr);
  EXPECT_EQ(of_wrapped.optimizer_state(0, "exp_avg")->name, "optimizer_0.state.model.a.exp_avg");
  EXPECT_EQ(of_wrapped.optimizer_state(1, "exp_avg"), nullptr);
  EXPECT_EQ(of_wrapped.unexpected_optimizer_state(), (Names{"optimizer_0.state.model.x.exp_avg"}));
}

}  // namespace
}  // namespace fsdp2::ckpt
