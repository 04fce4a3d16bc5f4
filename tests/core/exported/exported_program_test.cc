#include "core/exported/exported_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/buffers.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::exported {
namespace {

const char kPrograms[] = "tests/parity/exported/";

ExportedModel load_golden(const std::string& name) {
  ExportedModel model = load_exported(kPrograms + name + ".pt2");
  nn::materialize(*model.module, *model.values);
  return model;
}

nn::Values tokens(int64_t batch, int64_t length) {
  const at::Tensor ids = at::arange(batch * length, at::device(at::kCPU).dtype(at::kLong))
                             .remainder(23)
                             .view({batch, length});
  return {ids, ids.clone()};
}

std::string kind_at(const nn::Module& root, const std::string& path) {
  const auto modules = root.named_modules();
  return dynamic_cast<const nn::Module&>(*modules[path]).kind();
}

TEST(ExportedProgram, IsTheTreeThatTheModelWasInPython) {
  const ExportedModel model = load_golden("picture_model");
  EXPECT_EQ(model.module->kind(), "PictureModel");
  EXPECT_EQ(kind_at(*model.module, "blocks.1.up"), "Linear");
  EXPECT_EQ(kind_at(*model.module, "norm"), "LayerNorm");
  EXPECT_EQ(model.module->no_split_kinds(), std::vector<std::string>{"Block"});
  EXPECT_EQ(load_golden("gpt2").module->no_split_kinds(), std::vector<std::string>{"GPT2Block"});
}

TEST(ExportedProgram, TiesAndFrozenParametersStayThat) {
  const ExportedModel model = load_golden("picture_model");
  const auto parameters = nn::named_unique_parameters(*model.module);
  const auto find = [&](const std::string& name) {
    return std::find_if(parameters.begin(), parameters.end(),
                        [&](const auto& parameter) { return parameter.names.front() == name; });
  };
  EXPECT_EQ(find("words.weight")->names, (std::vector<std::string>{"words.weight", "head.weight"}));
  EXPECT_FALSE(find("frozen")->tensor.requires_grad());
  EXPECT_TRUE(find("conv.weight")->tensor.requires_grad());
}

TEST(ExportedProgram, TakesSizesThatItWasExportedForAlone) {
  const ExportedModel model = load_golden("llama");
  EXPECT_NO_THROW((*model.module)(tokens(5, 32)));
  EXPECT_ERROR((*model.module)(tokens(1, 33)), Code::kInvalidArgument,
               "llama.pt2: input input_ids: size of dim 1: exported for 2 to 32, found 33");
  nn::Values inputs = tokens(2, 4);
  inputs[1] = tokens(2, 5)[1];
  EXPECT_ERROR((*model.module)(inputs), Code::kInvalidArgument,
               "input labels: size of dim 1: expected 4, which another input has, found 5");
  inputs[1] = inputs[0].toTensor().to(at::kInt);
  EXPECT_ERROR((*model.module)(inputs), Code::kInvalidArgument,
               "input labels: expected type Long, found Int");
  inputs[1] = inputs[0].toTensor().view({-1});
  EXPECT_ERROR((*model.module)(inputs), Code::kInvalidArgument, "expected 2 dims, found 1");
  inputs.pop_back();
  EXPECT_ERROR((*model.module)(inputs), Code::kInvalidArgument, "expected 2 inputs, found 1");
}

TEST(ExportedProgram, SaysWhichNodeAnOperatorRefused) {
  const ExportedModel model = load_golden("llama");
  nn::Values inputs = tokens(2, 4);
  inputs[0] = inputs[0].toTensor() + 100;
  EXPECT_ERROR((*model.module)(inputs), Code::kInvalidArgument,
               "llama.pt2: torch.ops.aten.embedding.default (node , in module "
               "\"model.embed_tokens\"): index out of range");
}

TEST(ExportedProgram, RunsInTheDtypeOfTheExportAlone) {
  ExportedModel model = load_exported(std::string(kPrograms) + "llama.pt2", {at::kBFloat16});
  nn::materialize(*model.module, *model.values);
  EXPECT_ERROR((*model.module)(tokens(2, 4)), Code::kInvalidArgument,
               "the program computes with model.embed_tokens.weight in Float, found BFloat16");
}

TEST(ExportedProgram, DropoutFollowsTheSeedAndIsTheSameInASecondRun) {
  const auto gradient = [](bool checkpointed) {
    const ExportedModel model = load_golden("bert");
    EXPECT_TRUE(model.draws_random_numbers);
    if (checkpointed) {
      EXPECT_EQ(nn::checkpoint_by_kind(*model.module, {"BertLayer"}), 1);
    }
    at::manual_seed(3);
    (*model.module)(tokens(4, 8)).toTensor().backward();
    return model.module->named_parameters()["bert.embeddings.word_embeddings.weight"].grad();
  };
  const at::Tensor once = gradient(false);
  EXPECT_TRUE(gradient(false).equal(once));
  EXPECT_TRUE(gradient(true).equal(once));
  EXPECT_FALSE(load_golden("llama").draws_random_numbers);
}

TEST(ExportedProgram, ModulesInsideRunOnlyAsPartsOfIt) {
  const ExportedModel model = load_golden("picture_model");
  const auto block =
      std::dynamic_pointer_cast<nn::Module>(model.module->named_modules()["blocks.0"]);
  EXPECT_ERROR((*block)(nn::Values{at::zeros({1, 8}, at::device(at::kCPU))}), Code::kUnsupported,
               "a Block inside of an exported program runs only as a part of it");
}

class SmallProgram : public FileTest {
 protected:
  ExportedModel load() const {
    ExportedModel model = load_exported(write("m.pt2", file.bytes()));
    nn::materialize(*model.module, *model.values);
    return model;
  }
  static at::Tensor x() {
    return at::tensor({1, 2, 3, 4}, at::device(at::kCPU).dtype(at::kFloat)).view({2, 2});
  }

  ProgramFile file;
};

TEST_F(SmallProgram, ComputesLossAndGradient) {
  const ExportedModel model = load();
  const at::Tensor loss = (*model.module)(x());
  EXPECT_EQ(loss.item<float>(), 2 * (1 + 3) + 3 * (2 + 4));
  loss.backward();
  const at::Tensor gradient = model.module->named_parameters()["part.w"].grad();
  EXPECT_TRUE(gradient.equal(at::tensor({4.0F, 6.0F}, at::device(at::kCPU))));
}

TEST_F(SmallProgram, RegionsWithoutGradientsHaveNone) {
  file.node(0) = node_without_gradients();
  const ExportedModel model = load();
  const at::Tensor inputs = x().set_requires_grad(true);
  const at::Tensor loss = (*model.module)(inputs);
  EXPECT_EQ(loss.item<float>(), -10);
  EXPECT_FALSE(loss.requires_grad());
  file = ProgramFile();
  EXPECT_TRUE((*load().module)(inputs).requires_grad());
}

TEST_F(SmallProgram, NumbersLeaveTheDtypeOfTensorsAlone) {
  file.node(0)["inputs"][1] = given("other", R"({"as_float": 0.5})");
  EXPECT_EQ((*load().module)(x()).scalar_type(), at::kFloat);
}

TEST_F(SmallProgram, WithoutValuesWaitsForThem) {
  file.weight_bytes = "";
  ExportedModel model = load_exported(write("m.pt2", file.bytes()));
  EXPECT_FALSE(model.has_values);
  EXPECT_FALSE(model.values->contains("part.w"));
  EXPECT_ERROR(nn::materialize(*model.module, *model.values), Code::kNotFound,
               "m.pt2: the parameter part.w was exported without values");
}

TEST_F(SmallProgram, DamagedValuesAreFoundOut) {
  std::string bytes = file.bytes();
  const size_t at = bytes.find(file.weight_bytes);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  ExportedModel model = load_exported(write("m.pt2", bytes));
  EXPECT_ERROR(nn::materialize(*model.module, *model.values), Code::kCorruptData,
               "record data/weights/weight_0 is damaged");
}

// x is changed by "part", so that a second run would begin with other numbers.
TEST_F(SmallProgram, ModulesThatChangeTheirInputsAreNoCheckpoints) {
  file.node(0)["target"] = "torch.ops.aten.mul_.Tensor";
  const ExportedModel model = load();
  EXPECT_ERROR(nn::checkpoint_by_kind(*model.module, {"Part"}), Code::kUnsupported,
               "torch.ops.aten.mul_.Tensor (node mul, in module \"part\"): changes in place what "
               "was there before its module ran");
}

TEST_F(SmallProgram, PersistentBuffersAreTheModulesAndChangeInPlace) {
  json& spec = file.program["graph_module"]["signature"]["input_specs"][0];
  spec = json::parse(
      R"({"buffer": {"arg": {"name": "p_w"}, "buffer_name": "part.w", "persistent": true}})");
  file.node(0) = json::parse(
      R"({"target": "torch.ops.aten.mul_.Tensor", "name": "mul",
          "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "p_w"}}},
                     {"name": "other", "arg": {"as_int": 2}}],
          "outputs": [{"as_tensor": {"name": "mul"}}],
          "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}})");
  const ExportedModel model = load();
  const auto buffers = nn::persistent_buffers(*model.module);
  ASSERT_EQ(buffers.size(), 1U);
  EXPECT_EQ(buffers[0].name, "part.w");
  const at::Tensor before = buffers[0].tensor.clone();
  (*model.module)(x());
  EXPECT_TRUE(buffers[0].tensor.equal(2 * before));
  buffers[0].tensor.fill_(3);  // as a checkpoint that is loaded
  EXPECT_EQ((*model.module)(x()).item<float>(), 2 * 6);
  EXPECT_ERROR(nn::checkpoint_by_kind(*model.module, {"Part"}), Code::kUnsupported,
               "changes in place what was there before its module ran");
  spec["buffer"]["persistent"] = false;
  file.constants = file.weights;
  file.constants["config"]["part.w"]["path_name"] = "tensor_0";
  file.more = {{"m/data/constants/tensor_0", file.weight_bytes}};
  EXPECT_TRUE(nn::persistent_buffers(*load().module).empty());
}

TEST_F(SmallProgram, BuffersHaveAModuleAndANameOfTheirOwn) {
  json& module = file.program["graph_module"];
  module["graph"]["inputs"].push_back(json::parse(R"({"as_tensor": {"name": "b"}})"));
  module["graph"]["tensor_values"]["b"] = {{"dtype", 7}};
  for (const auto& [name, message] :
       {std::pair("elsewhere.b", "there is no module for the buffer elsewhere.b"),
        std::pair("part", "the buffer part has no name, or that of another")}) {
    ProgramFile hostile = file;
    hostile.program["graph_module"]["signature"]["input_specs"].push_back(
        {{"buffer", {{"arg", {{"name", "b"}}}, {"buffer_name", name}, {"persistent", true}}}});
    json& config = hostile.weights["config"];
    config[name] = config["part.w"];
    config[name]["is_param"] = false;
    config[name]["tensor_meta"]["sizes"][0]["as_int"] = 1;
    EXPECT_ERROR(load_exported(write("m.pt2", hostile.bytes())), Code::kCorruptData, message);
  }
}

// "part.last", a view of part.w's last element.
void add_view(ProgramFile& file) {
  json& module = file.program["graph_module"];
  module["graph"]["inputs"].push_back(json::parse(R"({"as_tensor": {"name": "b"}})"));
  module["graph"]["tensor_values"]["b"] = {{"dtype", 7}};
  module["signature"]["input_specs"].push_back(json::parse(
      R"({"buffer": {"arg": {"name": "b"}, "buffer_name": "part.last", "persistent": true}})"));
  json& config = file.weights["config"];
  config["part.last"] = config["part.w"];
  json& meta = config["part.last"]["tensor_meta"];
  meta["sizes"][0]["as_int"] = 1;
  meta["storage_offset"]["as_int"] = 1;
}

void make_a_buffer_of_the_parameter(ProgramFile& file) {
  file.program["graph_module"]["signature"]["input_specs"][0] = json::parse(
      R"({"buffer": {"arg": {"name": "p_w"}, "buffer_name": "part.w", "persistent": true}})");
}

TEST_F(SmallProgram, BuffersThatOverlapInTheFileShareTheirMemory) {
  make_a_buffer_of_the_parameter(file);
  add_view(file);
  file.node(0) = json::parse(
      R"({"target": "torch.ops.aten.mul_.Tensor", "name": "mul",
          "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b"}}},
                     {"name": "other", "arg": {"as_int": 2}}],
          "outputs": [{"as_tensor": {"name": "mul"}}],
          "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}})");
  file.node(1)["inputs"][0] = given("self", R"({"as_tensor": {"name": "p_w"}})");
  const ExportedModel model = load();
  EXPECT_EQ((*model.module)(x()).item<float>(), 2 + 2 * 3);
  EXPECT_EQ((*model.module)(x()).item<float>(), 2 + 4 * 3);
  EXPECT_EQ(nn::persistent_buffers(*model.module).size(), 2U);
}

TEST_F(SmallProgram, BuffersThatAreViewsOfParametersAreRefused) {
  add_view(file);
  EXPECT_ERROR(
      load(), Code::kUnsupported,
      "m.pt2: the buffer part.last is a view of the parameter part.w, and would not change");
}

// What torch.export makes of `self.w += 1`.
TEST_F(SmallProgram, ABufferThatIsCopiedOntoItselfStaysAsBackwardNeedsIt) {
  make_a_buffer_of_the_parameter(file);
  json& nodes = file.program["graph_module"]["graph"]["nodes"];
  const auto in_place = [](const char* target, const char* name, const json& other) {
    json node = json::parse(
        R"({"inputs": [{"name": "self", "arg": {"as_tensor": {"name": "p_w"}}}],
            "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}})");
    node["target"] = target;
    node["name"] = name;
    node["inputs"].push_back(other);
    node["outputs"][0]["as_tensor"]["name"] = name;
    return node;
  };
  nodes[0]["inputs"][1] = given("other", R"({"as_tensor": {"name": "more"}})");
  nodes.insert(nodes.begin(),
               in_place("torch.ops.aten.add_.Tensor", "more", given("other", R"({"as_int": 1})")));
  nodes.insert(nodes.begin() + 2, in_place("torch.ops.aten.copy_.default", "copy",
                                           given("src", R"({"as_tensor": {"name": "more"}})")));
  const ExportedModel model = load();
  const at::Tensor inputs = x().requires_grad_();
  (*model.module)(inputs).backward();
  EXPECT_TRUE(inputs.grad()[0].equal(at::tensor({3.0F, 4.0F}, at::device(at::kCPU))));
}

// What an operator throws need not be LibTorch's own error.
TEST_F(SmallProgram, NumbersThatADtypeCannotHoldAreToldWithTheirNode) {
  file.node(0)["target"] = "torch.ops.aten.celu.default";
  file.node(0)["inputs"][1] = given("alpha", R"({"as_float": 1e300})");
  const ExportedModel model = load();
  EXPECT_ERROR((*model.module)(x()), Code::kInvalidArgument,
               "torch.ops.aten.celu.default (node mul, in module \"part\"): value cannot be "
               "converted to type float");
}

// split gives its views in a list.
TEST_F(SmallProgram, ViewsInAListAreThatOfWhichTheyAreViews) {
  json& nodes = file.program["graph_module"]["graph"]["nodes"];
  nodes.insert(nodes.begin(), json::parse(R"json({
    "target": "torch.ops.aten.split.Tensor", "name": "split",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}},
               {"name": "split_size", "arg": {"as_int": 1}}],
    "outputs": [{"as_tensors": [{"name": "row_0"}, {"name": "row_1"}]}],
    "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}})json"));
  file.node(1)["target"] = "torch.ops.aten.mul_.Tensor";
  file.node(1)["inputs"][0] = given("self", R"({"as_tensor": {"name": "row_1"}})");
  file.weights["config"]["part.w"]["tensor_meta"]["requires_grad"] = false;
  const ExportedModel model = load();
  EXPECT_EQ((*model.module)(x()).item<float>(), 2 * 3 + 3 * 4);
  EXPECT_ERROR(nn::checkpoint_by_kind(*model.module, {"Part"}), Code::kUnsupported,
               "changes in place what was there before its module ran");
}

// A parameter of a module that another one uses is not there once the module's sharding has freed
// it.
TEST_F(SmallProgram, ParametersThatAreNotGatheredAreAnError) {
  const ExportedModel model = load();
  const at::Tensor parameter = model.module->named_parameters()["part.w"];
  nn::resize_storage(parameter, 0);
  EXPECT_ERROR((*model.module)(x()), Code::kWrongState,
               "m.pt2: p_w is used outside of the module that holds it");
}

}  // namespace
}  // namespace fsdp2::exported
