// What a checkpointer writes, refuses to write, and says of what it has read.
#include "core/train/checkpointer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ckpt::CheckpointFormat;

constexpr char kSaving[] = "saving";

// A sharded model with its optimizer; all values are `value`.
struct SavedRun {
  explicit SavedRun(const std::shared_ptr<World>& world, double value = 1.0) {
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters()) {
        parameter.fill_(value);
      }
    }
    root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    optimizer = make_adamw(root, {});
    checkpointer = std::make_unique<Checkpointer>(root);
  }

  TrainingObjects objects() const {
    TrainingObjects objects;
    objects.optimizer = optimizer.get();
    return objects;
  }
  void save(const std::string& path, const SaveOptions& options = {}) const {
    checkpointer->save(kSaving, [&] {
      SaveRequest request;
      request.path = path;
      request.options = options;
      request.objects = objects();
      return request;
    });
  }
  void load(const std::string& path) const {
    checkpointer->load("loading", [&] {
      LoadRequest request;
      request.path = path;
      request.objects = objects();
      return request;
    });
  }
  bool is_all(double value) const {
    for (const fsdp::ShardedParam* param : root->parameters()) {
      if (!at::all(param->sharded().detach() == value).item<bool>()) {
        return false;
      }
    }
    return true;
  }

  std::shared_ptr<TinyStack> model = std::make_shared<TinyStack>(TinyStackOptions{});
  std::shared_ptr<fsdp::Unit> root;
  std::shared_ptr<Optimizer> optimizer;
  std::unique_ptr<Checkpointer> checkpointer;
};

SaveOptions in_format(CheckpointFormat format) {
  SaveOptions options;
  options.format = format;
  return options;
}

class CheckpointerTest : public FileTest {};

TEST_F(CheckpointerTest, EachFormatIsWrittenAndReadBack) {
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcpDirectory, CheckpointFormat::kSafetensors, CheckpointFormat::kPth,
        CheckpointFormat::kPthPerRankDirectory}) {
    const std::string where = path(std::to_string(static_cast<int>(format)));
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      SavedRun(world, 3.0).save(where, in_format(format));
      const SavedRun other(world);
      other.checkpointer->load_model("loading", [&] { return where; });
      EXPECT_TRUE(other.is_all(3.0)) << ckpt::format_name(format);
    });
    EXPECT_EQ(ckpt::detect_format(where), format);
  }
}

TEST_F(CheckpointerTest, ALoadWaitsForTheSaveBeforeAndTellsWhatItFound) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const SavedRun run(world, 3.0);
    SaveOptions options;
    options.background = true;
    EXPECT_TRUE(run.checkpointer->poll());
    EXPECT_FALSE(run.checkpointer->loaded());
    run.save(path("run"), options);
    run.load(path("run"));
    EXPECT_TRUE(run.checkpointer->poll());
    EXPECT_TRUE(run.is_all(3.0));
    ASSERT_TRUE(run.checkpointer->loaded());
    EXPECT_EQ(run.checkpointer->loaded()->path, path("run"));
    EXPECT_EQ(run.checkpointer->loaded()->report.missing, std::vector<std::string>{});
  });
}

TEST_F(CheckpointerTest, AStateInMemoryIsLoadedOnAllRanksFromRankZero) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const SavedRun run(world, 3.0);
    const ckpt::StateDict state = run.checkpointer->state(
        "state", [&] { return StateRequest{run.objects(), OptimizerKeys::kByParameter, ""}; });
    const SavedRun other(world);
    other.checkpointer->load_state("loading", [&] {
      LoadStateRequest request;
      request.state = &state;
      request.from_rank0 = true;
      request.objects = other.objects();
      return request;
    });
    EXPECT_TRUE(other.is_all(3.0));
    EXPECT_EQ(other.checkpointer->loaded()->path, "a state in memory");
  });
}

TEST_F(CheckpointerTest, FilesThatRankZeroAloneSeesAreLoadedOnAllRanks) {
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcpDirectory, CheckpointFormat::kSafetensors, CheckpointFormat::kPth,
        CheckpointFormat::kPthPerRankDirectory}) {
    const std::string where = path(std::to_string(static_cast<int>(format)));
    run_ranks(3, [&](const std::shared_ptr<World>& world) {
      SavedRun(world, 3.0).save(where, in_format(format));
      const SavedRun other(world);
      other.checkpointer->load("loading", [&] {
        LoadRequest request;
        request.path = world->rank() == 0 ? where : path("not here");
        request.from_rank0 = true;
        if (format == CheckpointFormat::kDcpDirectory) {
          request.objects = other.objects();
        }
        return request;
      });
      EXPECT_TRUE(other.is_all(3.0)) << ckpt::format_name(format);
    });
  }
}

TEST_F(CheckpointerTest, FilesThatRankZeroCannotReadAreAnErrorOnAllRanks) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const SavedRun run(world, 3.0);
    LoadRequest request;
    request.path = path("missing");
    request.from_rank0 = true;
    EXPECT_ERROR(run.checkpointer->load("loading", [&] { return request; }),
                 world->rank() == 0 ? Code::kNotFound : Code::kPeerFailed, "missing");
    EXPECT_TRUE(run.is_all(3.0));
  });
}

TEST_F(CheckpointerTest, AModelIsWrittenInTheFormatOfItsName) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const SavedRun run(world);
    for (const char* name : {"model.pth", "model.safetensors"}) {
      run.checkpointer->save_model(kSaving, [&] { return SaveModelRequest{path(name), {}, {}}; });
    }
  });
  EXPECT_EQ(ckpt::detect_format(path("model.pth")), CheckpointFormat::kPth);
  EXPECT_EQ(ckpt::detect_format(path("model.safetensors")), CheckpointFormat::kSafetensors);
}

TEST_F(CheckpointerTest, OptionsThatAFormatDoesNotHaveAreRefused) {
  SaveOptions options = in_format(CheckpointFormat::kSafetensors);
  options.background = true;
  EXPECT_ERROR(check(options), Code::kUnsupported, "only sharded checkpoints");
  options = in_format(CheckpointFormat::kPth);
  options.keep_last = 2;
  EXPECT_ERROR(check(options), Code::kUnsupported, "kept by number");
  options = in_format(CheckpointFormat::kPthPerRankDirectory);
  options.overwrite = false;
  EXPECT_ERROR(check(options), Code::kUnsupported, "written in place");
  for (const CheckpointFormat format :
       {CheckpointFormat::kDcpDirectory, CheckpointFormat::kPthPerRankDirectory}) {
    options = in_format(format);
    options.dtype = at::kBFloat16;
    EXPECT_ERROR(check(options), Code::kUnsupported, "options.dtype");
  }
  options = in_format(CheckpointFormat::kHuggingFaceDirectory);
  options.dtype = at::kBFloat16;
  check(options);
}

TEST_F(CheckpointerTest, OnlyWhatMayBeReplacedIsReplaceable) {
  const std::string file = write("file", "bytes");
  const std::string full = path("full");
  write("full/notes.txt", "mine");
  EXPECT_ERROR(check_replaceable(file, {}), Code::kIo, "is a file");
  EXPECT_ERROR(check_replaceable(file, in_format(CheckpointFormat::kPthPerRankDirectory)),
               Code::kIo, "is a file");
  EXPECT_ERROR(check_replaceable(full, {}), Code::kIo, "has notes.txt in it");
  EXPECT_ERROR(check_replaceable(full, in_format(CheckpointFormat::kSafetensors)), Code::kIo,
               "is a directory");
  check_replaceable(full, in_format(CheckpointFormat::kPthPerRankDirectory));
  EXPECT_ERROR(check_replaceable(file, in_format(CheckpointFormat::kPth)), Code::kIo,
               "would be lost");
  check_replaceable(write("empty", ""), in_format(CheckpointFormat::kPth));
  check_replaceable(path("nothing"), {});
  SaveOptions options = in_format(CheckpointFormat::kPth);
  options.overwrite = false;
  EXPECT_ERROR(check_replaceable(file, options), Code::kIo, "not to be overwritten");
}

TEST_F(CheckpointerTest, WhatIsNotToBeOverwrittenStaysOnAllRanks) {
  const std::string file = write("model.pth", "bytes");
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    SaveOptions options = in_format(CheckpointFormat::kPth);
    options.overwrite = false;
    EXPECT_ERROR(SavedRun(world).save(file, options),
                 world->rank() == 0 ? Code::kIo : Code::kPeerFailed, "not to be overwritten");
  });
  EXPECT_EQ(contents(file), "bytes");
}

TEST_F(CheckpointerTest, RanksThatSaveDifferentPartsAreToldWhich) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const SavedRun run(world);
    const auto read = [&] {
      SaveRequest request;
      request.path = path("run");
      if (world->rank() == 0) {
        request.objects = run.objects();
      }
      return request;
    };
    EXPECT_ERROR(run.checkpointer->save(kSaving, read), Code::kInvalidArgument,
                 "optimizer: rank 0 has true, rank 1 has false");
    run.save(path("run"));
  });
}

}  // namespace
}  // namespace fsdp2::train
