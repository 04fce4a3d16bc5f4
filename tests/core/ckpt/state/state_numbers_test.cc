#include "core/ckpt/state/state_numbers.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using Shape = std::vector<int64_t>;

const std::vector<Shape> kModel = {{2, 3}, {2}, {4, 2}, {3}};

// A model of four parameters, and the state of an optimizer that lists them by number,
// the groups' parameters one after another.
class TwoGroups final : public StateSource {
 public:
  TwoGroups(const std::vector<Shape>& state, std::vector<std::vector<int64_t>> groups,
            const Shape& step = {}, const std::vector<Shape>& model = kModel)
      : StateSource("numbered"), groups_(std::move(groups)) {
    std::vector<StateEntry> entries;
    for (const Shape& shape : model) {
      const std::string name = std::to_string(entries.size());
      entries.push_back({"model." + name, {"model", name}, at::kFloat, shape, 0});
    }
    for (size_t number = 0; number < state.size(); ++number) {
      const auto add = [&](const char* slot, const Shape& shape) {
        entries.push_back({"optim.state." + std::to_string(number) + "." + slot,
                           {"optim", "state", static_cast<int64_t>(number), slot},
                           at::kFloat,
                           shape,
                           0});
      };
      add("step", step);
      if (!state[number].empty()) {
        add("exp_avg", state[number]);
      }
    }
    for (size_t group = 0; group < groups_.size(); ++group) {
      entries.push_back({"optim.param_groups." + std::to_string(group) + ".params",
                         {"optim", "param_groups", static_cast<int64_t>(group), "params"},
                         std::nullopt,
                         {},
                         group});
    }
    set_entries(std::move(entries));
  }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& /*out*/) const override {}
  PythonValue read_object(const StateEntry& entry) const override {
    PythonList list;
    for (const int64_t number : groups_[entry.index]) {
      list.items.emplace_back(number);
    }
    return list;
  }
  void verify() const override {}

  // "<group>:<number>" of each parameter.
  std::vector<std::string> places() const {
    std::vector<std::string> texts;
    for (const StateNumbers::Place& place : StateNumbers(*this, "optim.").places(tensors())) {
      texts.push_back(std::to_string(place.group) + ":" + std::to_string(place.number));
    }
    return texts;
  }

 private:
  std::vector<const StateEntry*> tensors() const {
    std::vector<const StateEntry*> tensors;
    for (const char* name : {"0", "1", "2", "3"}) {
      tensors.push_back(find(std::string("model.") + name));
    }
    return tensors;
  }

  std::vector<std::vector<int64_t>> groups_;
};

using Texts = std::vector<std::string>;

TEST(StateNumbers, OfOneGroupFollowTheModel) {
  const TwoGroups source({{2, 3}, {2}, {4, 2}, {3}}, {{0, 1, 2, 3}});
  EXPECT_EQ(source.places(), (Texts{"0:0", "0:1", "0:2", "0:3"}));
}

TEST(StateNumbers, OfGroupsWithoutAShapeInCommonAreToldApart) {
  const TwoGroups source({{2, 3}, {4, 2}, {2}, {3}}, {{0, 1}, {2, 3}});
  EXPECT_EQ(source.places(), (Texts{"0:0", "1:2", "0:1", "1:3"}));
  // A parameter without a gradient has counted steps alone, if anything.
  const TwoGroups unused({{2, 3}, {}, {2}, {3}}, {{0, 1}, {2, 3}});
  EXPECT_ERROR(unused.places(), Code::kUnsupported, "neither numbers nor shapes tell whose it is");
}

TEST(StateNumbers, OfGroupsAreToldByNoCounter) {
  const TwoGroups source({{2, 3}, {4, 2}, {2}, {3}}, {{0, 1}, {2, 3}}, {1});
  EXPECT_EQ(source.places(), (Texts{"0:0", "1:2", "0:1", "1:3"}));
}

// The first matrix has none, and would get the second one's.
TEST(StateNumbers, OfGroupsWhereAParameterHasNoStateAreRefused) {
  const TwoGroups source({{}, {2}, {4, 2}, {}}, {{0, 1}, {2, 3}}, {}, {{4, 2}, {4, 2}, {2}, {2}});
  EXPECT_ERROR(source.places(), Code::kUnsupported, "tell whose it is");
}

TEST(StateNumbers, OfGroupsWithAShapeInCommonAreRefused) {
  const TwoGroups source({{2, 3}, {2}, {4, 2}, {2}}, {{0, 1}, {2, 3}});
  EXPECT_ERROR(source.places(), Code::kUnsupported,
               "numbered: has optimizer state by number in 2 parameter groups, of which neither "
               "numbers nor shapes tell whose it is: save it by name");
}

TEST(StateNumbers, OfParametersInAnotherOrderAreRefused) {
  const TwoGroups source({{4, 2}, {2, 3}, {2}, {3}}, {{0, 1}, {2, 3}});
  EXPECT_ERROR(source.places(), Code::kUnsupported, "tell whose it is");
}

TEST(StateNumbers, OfAnotherModelAreRefused) {
  const TwoGroups source({{2, 3}, {4, 2}, {2}}, {{0, 1}, {2}});
  EXPECT_ERROR(source.places(), Code::kCorruptData,
               "numbered: has optimizer state of 3 parameters by number, the model has 4");
}

}  // namespace
}  // namespace fsdp2::ckpt
