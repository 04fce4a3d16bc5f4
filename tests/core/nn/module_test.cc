#include "core/nn/module.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/base/error.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module_list.h"

namespace fsdp2::nn {
namespace {

using ::testing::ElementsAre;

using Events = std::vector<std::string>;

// x -> 2 x, or throws.
class Doubler : public Module {
 public:
  explicit Doubler(Events* events) : Module("Doubler"), events_(events) {}
  bool throws = false;

 protected:
  c10::IValue forward(Values inputs) override {
    events_->push_back("forward");
    if (throws) {
      throw std::runtime_error("forward failed");
    }
    return inputs[0].toTensor() * 2;
  }

 private:
  Events* events_;
};

class RecordingHooks : public ForwardHooks {
 public:
  RecordingHooks(std::string name, Events* events) : name_(std::move(name)), events_(events) {}
  bool pre_throws = false;
  bool post_throws = false;

  void pre_forward(Module& /*module*/, Values& inputs) override {
    events_->push_back("pre " + name_);
    if (pre_throws) {
      throw std::runtime_error("pre failed");
    }
    inputs[0] = inputs[0].toTensor() + 1;
  }
  void post_forward(Module& /*module*/, c10::IValue& output) override {
    events_->push_back("post " + name_);
    if (post_throws) {
      throw std::runtime_error("post failed");
    }
    output = output.toTensor() + 10;
  }
  void forward_failed(Module& /*module*/) noexcept override {
    events_->push_back("failed " + name_);
  }

 private:
  std::string name_;
  Events* events_;
};

class ModuleHooks : public ::testing::Test {
 protected:
  ModuleHooks() {
    module_->add_hooks(a_);
    module_->add_hooks(b_);
  }

  Events events_;
  std::shared_ptr<Doubler> module_ = std::make_shared<Doubler>(&events_);
  std::shared_ptr<RecordingHooks> a_ = std::make_shared<RecordingHooks>("a", &events_);
  std::shared_ptr<RecordingHooks> b_ = std::make_shared<RecordingHooks>("b", &events_);
  at::Tensor one_ = at::ones({1});
};

TEST_F(ModuleHooks, RunInOrderBeforeAndInReverseAfterForward) {
  (*module_)(one_);
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "forward", "post b", "post a"));
}

TEST_F(ModuleHooks, ReplaceInputsAndOutput) {
  EXPECT_EQ((*module_)(one_).item<float>(), 2 * (1 + 1 + 1) + 10 + 10);
}

TEST_F(ModuleHooks, AllHearOfAFailedForward) {
  module_->throws = true;
  EXPECT_THROW((*module_)(one_), std::runtime_error);
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "forward", "failed b", "failed a"));
}

TEST_F(ModuleHooks, OnlyThoseThatRanHearOfAFailedPreForward) {
  b_->pre_throws = true;
  EXPECT_THROW((*module_)(one_), std::runtime_error);
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "failed a"));
}

TEST_F(ModuleHooks, AnEarlierHookHearsOfAFailedPostForward) {
  b_->post_throws = true;
  EXPECT_THROW((*module_)(one_), std::runtime_error);
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "forward", "post b", "failed a"));
}

TEST_F(ModuleHooks, CanBeRemoved) {
  module_->remove_hooks(a_.get());
  (*module_)(one_);
  EXPECT_THAT(events_, ElementsAre("pre b", "forward", "post b"));
}

TEST_F(ModuleHooks, RunAroundAnotherEntryPoint) {
  const c10::IValue output = module_->run({one_}, [&](const Values& inputs) {
    events_.emplace_back("body");
    return inputs[0];
  });
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "body", "post b", "post a"));
  EXPECT_EQ(output.toTensor().item<float>(), 1 + 1 + 1 + 10 + 10);
}

class TwiceWrapper : public ForwardWrapper {
 public:
  c10::IValue run(Module& /*module*/, const ForwardBody& forward, Values inputs) override {
    return forward({forward(std::move(inputs))});
  }
};

TEST_F(ModuleHooks, RunAroundTheForwardWrapper) {
  module_->set_forward_wrapper(std::make_shared<TwiceWrapper>());
  EXPECT_EQ((*module_)(one_).item<float>(), 2 * 2 * (1 + 1 + 1) + 10 + 10);
  EXPECT_THAT(events_, ElementsAre("pre a", "pre b", "forward", "forward", "post b", "post a"));
  module_->set_forward_wrapper(nullptr);
  EXPECT_EQ((*module_)(one_).item<float>(), 2 * (1 + 1 + 1) + 10 + 10);
}

class CountingSource : public ParameterSource {
 public:
  Events reads;
  bool fails = false;
  std::string lacks;

  bool contains(const std::string& name) const override { return name != lacks; }

  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override {
    if (fails) {
      throw Error(Code::kNotFound, name);
    }
    reads.push_back(name);
    EXPECT_EQ(first_row, 0);
    EXPECT_EQ(out.numel(), c10::multiply_integers(shape));
    out.fill_(static_cast<double>(reads.size()));
  }
};

// A list of linears; the last one shares the weight of the first.
std::shared_ptr<ModuleList> tied_list() {
  auto list = std::make_shared<ModuleList>();
  const auto first = std::make_shared<Linear>(3, 2, /*has_bias=*/true, at::kFloat);
  list->append(first);
  list->append(std::make_shared<Linear>(2, 3, /*has_bias=*/false, at::kBFloat16));
  list->append(std::make_shared<Linear>(first->weight()));
  return list;
}

TEST(DeferredParameter, HasAShapeAndNoMemory) {
  const at::Tensor parameter = deferred_parameter({4, 3}, at::kBFloat16);
  EXPECT_EQ(parameter.sizes(), at::IntArrayRef({4, 3}));
  EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(parameter.requires_grad());
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_TRUE(parameter.is_contiguous());
  EXPECT_EQ(parameter.storage().nbytes(), 0U);
  EXPECT_TRUE(has_no_memory(parameter));
}

TEST(DeferredParameter, WithoutElementsIsNotMissingMemory) {
  EXPECT_FALSE(has_no_memory(deferred_parameter({0, 3}, at::kFloat)));
  EXPECT_FALSE(has_no_memory(at::Tensor()));
}

TEST(DeferredParameter, RefusesAShapeBeyondInt64) {
  EXPECT_THROW(deferred_parameter({int64_t{1} << 40, int64_t{1} << 40}, at::kFloat), Error);
  EXPECT_THROW(deferred_parameter({-1}, at::kFloat), Error);
}

TEST(ResizeStorage, EveryHandleAndViewSeesTheNewMemory) {
  const at::Tensor parameter = deferred_parameter({2, 2}, at::kFloat);
  const at::Tensor other_handle = parameter;
  resize_storage(parameter, 16);
  EXPECT_FALSE(has_no_memory(other_handle));
  const at::Tensor transposed = parameter.detach().t();
  resize_storage(parameter, 0);
  resize_storage(parameter, 16);
  parameter.variable_data().copy_(at::arange(4).view({2, 2}));
  EXPECT_EQ(transposed[0][1].item<float>(), 2);
  resize_storage(parameter, 0);
  EXPECT_TRUE(has_no_memory(other_handle));
}

TEST(ResizeStorage, RefillsWhatAutogradSavedWithoutAVersionConflict) {
  at::Tensor weight = deferred_parameter({2}, at::kFloat);
  resize_storage(weight, 8);
  weight.variable_data().fill_(3);
  const at::Tensor x = at::ones({2}).requires_grad_(true);
  const at::Tensor y = (x * weight).sum();
  const auto version = weight._version();
  resize_storage(weight, 0);
  resize_storage(weight, 8);
  weight.variable_data().fill_(3);
  EXPECT_EQ(weight._version(), version);
  y.backward();
  EXPECT_EQ(x.grad()[0].item<float>(), 3);
}

TEST(ResizeStorage, GivesForeignMemoryAnAllocator) {
  float values[2] = {1, 2};
  const at::Tensor foreign = at::from_blob(values, {2}, at::kFloat);
  resize_storage(foreign, 0);
  resize_storage(foreign, 8);
  foreign.fill_(5);
  EXPECT_EQ(foreign[1].item<float>(), 5);
  EXPECT_EQ(values[1], 2);
}

TEST(Materialize, ReadsATieOnceUnderItsFirstName) {
  const auto list = tied_list();
  CountingSource source;
  materialize(*list, source);
  EXPECT_THAT(source.reads, ElementsAre("0.weight", "0.bias", "1.weight"));
  EXPECT_EQ(list->named_parameters()["2.weight"][0][0].item<float>(), 1);
}

// safetensors' save_model writes the name that comes first in the alphabet alone.
TEST(Materialize, ReadsATieUnderTheNameThatTheSourceHas) {
  CountingSource source;
  source.lacks = "0.weight";
  materialize(*tied_list(), source);
  EXPECT_THAT(source.reads, ElementsAre("2.weight", "0.bias", "1.weight"));
}

TEST(Materialize, LeavesParametersThatHaveMemory) {
  const auto list = tied_list();
  CountingSource source;
  materialize(*list, source);
  materialize(*list, source);
  EXPECT_EQ(source.reads.size(), 3U);
}

TEST(Materialize, AFailedReadLeavesTheParameterDeferred) {
  const auto list = tied_list();
  CountingSource source;
  source.fails = true;
  EXPECT_THROW(materialize(*list, source), Error);
  EXPECT_TRUE(has_no_memory(list->named_parameters()["0.weight"]));
}

TEST(NamedUniqueParameters, ListsEachTensorOnceWithAllItsNames) {
  const auto parameters = named_unique_parameters(*tied_list());
  ASSERT_EQ(parameters.size(), 3U);
  EXPECT_THAT(parameters[0].names, ElementsAre("0.weight", "2.weight"));
  EXPECT_THAT(parameters[1].names, ElementsAre("0.bias"));
  EXPECT_THAT(parameters[2].names, ElementsAre("1.weight"));
}

TEST(ChildModules, AreListedInOrderWithTheirNames) {
  const auto children = tied_list()->child_modules();
  ASSERT_EQ(children.size(), 3U);
  EXPECT_EQ(children[1].first, "1");
  EXPECT_EQ(children[1].second->kind(), "Linear");
}

TEST(Layers, WithoutMemoryAreAnErrorThatNamesThem) {
  Linear linear(3, 2, /*has_bias=*/false, at::kFloat);
  RMSNorm norm("LlamaRMSNorm", 3, 1e-6, at::kFloat);
  for (Module* layer : {static_cast<Module*>(&linear), static_cast<Module*>(&norm)}) {
    try {
      (*layer)(at::ones({1, 3}));
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kWrongState);
      EXPECT_THAT(error.message(), ::testing::HasSubstr(layer->kind() + ".weight"));
    }
  }
}

TEST(ModuleList, CannotBeCalled) {
  ModuleList list;
  EXPECT_THROW(list(at::ones({1})), Error);
}

}  // namespace
}  // namespace fsdp2::nn
