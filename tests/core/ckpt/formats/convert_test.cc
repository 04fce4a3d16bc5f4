// Checkpoints that go from one format into another.
#include "core/ckpt/formats/convert.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/pth_file.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/dcp/dcp_fixture.h"

namespace fsdp2::ckpt {
namespace {

class Convert : public FileTest {
 protected:
  // As Python's DCP lists what two ranks have saved: what is cut over them first, then what both
  // have alike.
  void write_run_of_two_ranks() {
    DcpBuilder builder(path("run"));
    for (const char* name : {"a", "b"}) {
      builder.add_tensor({"model", name}, at::full({4, 2}, value_of(name)), 2);
      for (const char* slot : {"exp_avg", "exp_avg_sq"}) {
        builder.add_tensor({"optim", "state", name, slot}, at::full({4, 2}, value_of(slot)), 2);
      }
    }
    for (const char* name : {"a", "b"}) {
      builder.add_tensor({"optim", "state", name, "step"}, at::scalar_tensor(value_of(name)));
    }
    builder.add_object({"optim", "param_groups", int64_t{0}, "lr"}, PythonValue(0.5));
    builder.write();
  }

  static double value_of(const std::string& name) { return name[name.size() - 1]; }

  void convert(const std::string& to, CheckpointFormat format) const {
    ConvertOptions options;
    options.format = format;
    options.ranks = 2;
    convert_checkpoint(path("run"), path(to), options);
  }

  static void expect_run(const std::string& path) {
    const auto source = open_checkpoint(path);
    for (const std::string name : {"a", "b"}) {
      EXPECT_TRUE(is_filled(*source, "model." + name, value_of(name)));
      EXPECT_TRUE(is_filled(*source, "optim.state." + name + ".step", value_of(name)));
      for (const std::string slot : {"exp_avg", "exp_avg_sq"}) {
        EXPECT_TRUE(is_filled(*source, "optim.state." + name + "." + slot, value_of(slot)));
      }
    }
    EXPECT_EQ(source->read_object(*source->find("optim.param_groups.0.lr")), PythonValue(0.5));
  }

  static bool is_filled(const StateSource& source, const std::string& name, double value) {
    const StateEntry* entry = source.find(name);
    return entry != nullptr && read_whole(source, *entry).eq(value).all().item<bool>();
  }
};

TEST_F(Convert, RunOfSeveralRanksBecomesATorchFile) {
  write_run_of_two_ranks();
  convert("run.pth", CheckpointFormat::kPth);
  expect_run(path("run.pth"));
}

TEST_F(Convert, RunOfSeveralRanksBecomesTorchFilesOfEachRank) {
  write_run_of_two_ranks();
  convert("ranks", CheckpointFormat::kPthPerRankDirectory);
  expect_run(path("ranks"));
}

TEST_F(Convert, AFileThatIsNoCheckpointIsNotReplaced) {
  write_run_of_two_ranks();
  write("tokens.bin", "tokens of somebody");
  EXPECT_ERROR(convert("tokens.bin", CheckpointFormat::kPth), Code::kIo,
               path("tokens.bin") + ": is neither a file of torch.save nor safetensors, and would");
  EXPECT_EQ(contents(path("tokens.bin")), "tokens of somebody");
  write("run.pth", "");
  for (int i = 0; i < 2; ++i) {  // an empty file, then a checkpoint
    convert("run.pth", CheckpointFormat::kPth);
    expect_run(path("run.pth"));
  }
}

// A data file looks like a file of torch.save, which it is to hold.
TEST_F(Convert, APartOfACheckpointIsNotReplaced) {
  write_run_of_two_ranks();
  const std::string part = path("run/__0_0.distcp");
  const std::string before = contents(part);
  EXPECT_ERROR(convert("run/__0_0.distcp", CheckpointFormat::kPth), Code::kIo,
               part + ": is a part of " + path("run") + ", a DCP directory, which would be broken");
  std::filesystem::copy(path("run"), path("other"));
  std::filesystem::rename(part, path("elsewhere"));
  std::filesystem::create_symlink("../elsewhere", part);
  EXPECT_ERROR(convert("run/__0_0.distcp", CheckpointFormat::kPth), Code::kIo, "is a part of");
  std::filesystem::create_symlink("other/__0_0.distcp", path("link"));
  for (const char* name : {"other/__0_0.distcp", "link"}) {
    EXPECT_ERROR(convert(name, CheckpointFormat::kPth), Code::kIo,
                 path(name) + ": is a part of " + path("other") + ", a DCP directory");
  }
  convert("ranks", CheckpointFormat::kPthPerRankDirectory);
  EXPECT_ERROR(convert("ranks/fsdp_sharded_cpt0_rank1.pth", CheckpointFormat::kPth), Code::kIo,
               "rank1.pth: is a part of " + path("ranks"));
  EXPECT_EQ(contents(part), before);
  EXPECT_EQ(contents(path("other/__0_0.distcp")), before);
  for (int i = 0; i < 2; ++i) {  // which nobody reads
    convert("run/whole.pth", CheckpointFormat::kPth);
    expect_run(path("run/whole.pth"));
  }
}

TEST_F(Convert, AShardOfAModelIsNotReplacedAndAWholeModelIs) {
  write_run_of_two_ranks();
  convert("model.safetensors", CheckpointFormat::kSafetensors);
  const std::string weights = contents(path("model.safetensors"));
  write("whole/model.safetensors", weights);
  convert("whole/model.safetensors", CheckpointFormat::kSafetensors);
  const std::string shard = write("shards/model-00001-of-00001.safetensors", weights);
  write("shards/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  EXPECT_ERROR(convert("shards/model-00001-of-00001.safetensors", CheckpointFormat::kSafetensors),
               Code::kIo, shard + ": is a part of " + path("shards"));
}

// Writes a run that a conversion warns of while it reads it.
void write_warned_of(const std::string& path, double value) {
  DcpBuilder builder(path);
  builder.add_tensor({"model", "a"}, at::full({4}, value), 1);
  const PythonTuple pair{{PythonValue(0.5), describe_tensor(0, at::kFloat, {1})}};
  builder.add_archive({"pair"}, write_torch_archive(pair, {at::ones({1})}));
  builder.write();
}

// Half of one checkpoint and half of another would be a third, which no run ever had.
TEST_F(Convert, SourceThatASaveReplacesMeanwhileIsSaidToBe) {
  const LogScope scope;  // whose records come at once
  for (const CheckpointFormat format : {CheckpointFormat::kPth, CheckpointFormat::kDcpDirectory,
                                        CheckpointFormat::kPthPerRankDirectory}) {
    const std::string number = std::to_string(static_cast<int>(format));
    write_warned_of(path("run"), 1);
    bool is_replaced = false;
    set_log_sink(LogLevel::kWarning, [&](const LogRecord&) {
      if (!std::exchange(is_replaced, true)) {
        std::filesystem::rename(path("run"), path("old" + number));
        write_warned_of(path("run"), 2);
      }
    });
    const std::string to = "to" + number;
    EXPECT_ERROR(convert(to, format), Code::kIo,
                 path("run") + ": was replaced or removed while it was read");
    EXPECT_FALSE(std::filesystem::exists(path(to)) && !std::filesystem::is_empty(path(to))) << to;
    set_log_sink(LogLevel::kWarning, {});
    std::filesystem::remove_all(path("run"));
  }
}

// The first rank's rows are all there, the second's are not.
TEST_F(Convert, ThatFailsInTheMiddleLeavesNothing) {
  DcpBuilder builder(path("run"));
  builder.spread(2);
  builder.add_tensor({"model", "a"}, at::ones({4, 2}), 2);
  builder.write();
  const std::string second = path("run/__1_0.distcp");
  write("run/__1_0.distcp", std::string(std::filesystem::file_size(second), '\0'));
  for (const CheckpointFormat format :
       {CheckpointFormat::kPth, CheckpointFormat::kSafetensors, CheckpointFormat::kDcpDirectory,
        CheckpointFormat::kPthPerRankDirectory}) {
    EXPECT_ERROR(convert("to", format), Code::kCorruptData, "__1_0.distcp");
    EXPECT_EQ(files(), std::vector<std::string>{"run"}) << format_name(format);
  }
  write("to/notes.txt", "");
  EXPECT_ERROR(convert("to", CheckpointFormat::kPthPerRankDirectory), Code::kCorruptData,
               "__1_0.distcp");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("to")), {}), 1);
}

// Python's DCP pickles a tuple as a whole.
TEST_F(Convert, TensorsInsideAnObjectAreLeftOut) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "a"}, at::ones({4}), 2);
  const PythonTuple pair{{PythonValue(0.5), describe_tensor(0, at::kFloat, {1})}};
  builder.add_archive({"pair"}, write_torch_archive(pair, {at::ones({1})}));
  builder.write();
  for (const CheckpointFormat format : {CheckpointFormat::kPth, CheckpointFormat::kDcpDirectory}) {
    const std::string to = "to" + std::to_string(static_cast<int>(format));
    convert(to, format);
    const auto source = open_checkpoint(path(to));
    EXPECT_TRUE(is_filled(*source, "model.a", 1));
    EXPECT_EQ(source->entries().size(), 1);
  }
}

TEST_F(Convert, ModelAloneStaysUnderModelWhereOptimizersMayBe) {
  write_run_of_two_ranks();
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcpDirectory, CheckpointFormat::kPthPerRankDirectory}) {
    ConvertOptions options;
    options.format = format;
    options.model_only = true;
    const std::string to = path(std::to_string(static_cast<int>(format)));
    EXPECT_EQ(convert_checkpoint(path("run"), to, options).tensors, 2);
    EXPECT_TRUE(is_filled(*open_checkpoint(to), "model.a", value_of("a"))) << format_name(format);
  }
}

TEST_F(Convert, ModelAloneOfATorchFileIsAStateDict) {
  write_run_of_two_ranks();
  ConvertOptions options;
  options.format = CheckpointFormat::kPth;
  options.model_only = true;
  convert_checkpoint(path("run"), path("model.pth"), options);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("model.pth")), "a", value_of("a")));
}

// As PyTorch's dcp_to_torch_save writes it, and as load_state_dict reads it.
TEST_F(Convert, NamesOfParametersRemainAStateDictInATorchFile) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"layer.weight"}, at::ones({4, 2}), 2);
  builder.add_tensor({"layer.bias"}, at::full({4}, 2), 2);
  builder.write();
  convert("model.pth", CheckpointFormat::kPth);
  const auto flat = open_checkpoint(path("model.pth"));
  EXPECT_EQ(flat->entries().size(), 2);
  EXPECT_EQ(flat->entries().front().path.size(), 1);
  EXPECT_TRUE(is_filled(*flat, "layer.bias", 2));
  convert("again", CheckpointFormat::kDcpDirectory);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("again")), "model.layer.bias", 2));
}

// As PyTorch's tutorial of DCP saves an application.
TEST_F(Convert, AModelFurtherDownIsFoundIfItIsTheOnlyOne) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"app", "model", "a"}, at::full({4, 2}, 1));
  builder.add_tensor({"app", "optim", "state", "a", "exp_avg"}, at::full({4, 2}, 2));
  builder.write();
  convert("weights.safetensors", CheckpointFormat::kSafetensors);
  const auto flat = open_checkpoint(path("weights.safetensors"));
  EXPECT_EQ(flat->entries().size(), 1);
  EXPECT_TRUE(is_filled(*flat, "a", 1));
  ConvertOptions options;
  options.format = CheckpointFormat::kDcpDirectory;
  options.model_only = true;
  convert_checkpoint(path("run"), path("alone"), options);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("alone")), "model.a", 1));
  convert("whole", CheckpointFormat::kDcpDirectory);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("whole")), "app.optim.state.a.exp_avg", 2));
}

TEST_F(Convert, AStateDictIsAModelAndThatOfLightningHasOneInside) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"state_dict", "net.a"}, at::full({4, 2}, 1));
  builder.add_tensor({"state_dict", "net.b.c"}, at::full({4, 2}, 2));
  builder.add_tensor({"optimizer_0", "state", "net.a", "exp_avg"}, at::full({4, 2}, 3));
  builder.write();
  convert("plain.safetensors", CheckpointFormat::kSafetensors);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("plain.safetensors")), "net.b.c", 2));
  write("run/meta.pt", "of Lightning's, beside its shards");
  convert("model.safetensors", CheckpointFormat::kSafetensors);
  const auto model = open_checkpoint(path("model.safetensors"));
  EXPECT_EQ(model->entries().size(), 2);
  EXPECT_TRUE(is_filled(*model, "a", 1));
  EXPECT_TRUE(is_filled(*model, "b.c", 2));
}

TEST_F(Convert, ALightningModuleThatIsTheModelKeepsItsNames) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"state_dict", "body.a"}, at::full({4, 2}, 1));
  builder.add_tensor({"state_dict", "head.a"}, at::full({4, 2}, 2));
  builder.add_object({"pytorch-lightning_version"}, PythonValue("2.6"));
  builder.write();
  convert("model.safetensors", CheckpointFormat::kSafetensors);
  EXPECT_TRUE(is_filled(*open_checkpoint(path("model.safetensors")), "head.a", 2));
}

TEST_F(Convert, TwoModelsFurtherDownAreRefusedByName) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"actor", "model", "a"}, at::ones({4, 2}));
  builder.add_tensor({"critic", "model", "a"}, at::ones({4, 2}));
  builder.write();
  EXPECT_ERROR(convert("weights.safetensors", CheckpointFormat::kSafetensors),
               Code::kInvalidArgument, "expected one model, found 2: actor.model, critic.model");
}

// What a run of ours keeps beside the model.
TEST_F(Convert, ValuesUnderOurNameGoIntoTorchFilesOfEachRankAndBack) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "a"}, at::ones({4, 2}));
  builder.add_tensor({"fsdp2", "rng", "0"}, at::full({5}, 7, at::kByte));
  builder.add_object({"fsdp2", "data", "epoch"}, PythonValue(3));
  builder.add_object({"fsdp2", "world_size"}, PythonValue(1));
  builder.write();
  convert("ranks", CheckpointFormat::kPthPerRankDirectory);
  const auto source = open_checkpoint(path("ranks"));
  EXPECT_TRUE(is_filled(*source, "fsdp2.rng.0", 7));
  EXPECT_EQ(source->read_object(*source->find("fsdp2.data.epoch")), PythonValue(3));
  EXPECT_EQ(source->find("fsdp2.world_size"), nullptr);  // of the files
}

TEST_F(Convert, RecordsOfATorchFileAreInTheOrderOfItsTree) {
  write_run_of_two_ranks();
  convert("run.pth", CheckpointFormat::kPth);
  const TorchArchive archive(path("run.pth"));
  int64_t next = 0;
  for (const PthTensor& tensor : list_tensors(archive.root())) {
    EXPECT_EQ(tensor.tensor->storage, std::to_string(next++)) << tensor.name;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
