// Whole tensors are handled one at a time: the memory that it takes to write a full state or to
// convert a checkpoint is bounded by the largest tensor, not by the model.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/ckpt/formats/convert.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "tests/core/ckpt/child_process.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::ckpt {
namespace {

constexpr int64_t kLargestBytes = int64_t{8} << 20;  // 24 of them
constexpr int64_t kSlackBytes = int64_t{12} << 20;   // buffers
constexpr TinyStackOptions kModel = {1024, 2048, 12};
// All is done with this one first: then LibTorch has made what it makes once, and the pages of the
// libraries are mapped, of which there are more on one machine than on another.
constexpr TinyStackOptions kSmallModel = {4, 8, 12};

class MemoryBound : public FileTest {
 protected:
  MemoryBound() { write("config.json", "{}"); }
};

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::stoll(line.substr(6)) * 1024;
    }
  }
  return -1;
}

// From here on what is freed goes back to the system: a child's first line.
void give_memory_back() { ::mallopt(M_MMAP_THRESHOLD, 1 << 20); }

// Whether an action takes this process's memory at most so many largest tensors and slack up.
template <typename Action>
bool adds_at_most(int64_t largest_tensors, const std::string& what, const Action& action) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = peak_bytes();
  action();
  const int64_t added = peak_bytes() - before;
  const int64_t limit = largest_tensors * kLargestBytes + kSlackBytes;
  std::fprintf(stderr, "%s: the peak grew by %.1f MiB of %.1f\n", what.c_str(),
               static_cast<double>(added) / (1 << 20), static_cast<double>(limit) / (1 << 20));
  return before > 0 && added <= limit;
}

void save_full(const std::shared_ptr<World>& world, const TinyStackOptions& size,
               const std::string& path, CheckpointFormat format,
               std::optional<int64_t> most_tensors = std::nullopt) {
  const auto model = std::make_shared<TinyStack>(size);
  const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), fsdp::Policy());
  FullWriterOptions options;
  options.config_json = "{}";
  options.max_file_bytes = int64_t{64} << 20;
  const auto save = [&] { save_full_state_dict(*root, path, format, options); };
  world->control().barrier();  // all have let go of what they have not kept of the model
  if (world->rank() == 0 && most_tensors) {
    EXPECT_TRUE(adds_at_most(*most_tensors, "saving " + path, save));
  } else {
    save();
  }
}

TEST_F(MemoryBound, OfAFullStateIsTheLargestTensor) {
  for (const auto& [name, format] : {std::pair{"model.safetensors", CheckpointFormat::kSafetensors},
                                     std::pair{"model.pth", CheckpointFormat::kPth},
                                     std::pair{"hf", CheckpointFormat::kHuggingFaceDirectory}}) {
    const std::string file = path(name);
    const std::string small = path(std::string("small-") + name);
    const auto kind = format;
    EXPECT_TRUE(succeeded(in_child([&] {
      give_memory_back();
      run_ranks(2, [&](const std::shared_ptr<World>& world) {
        save_full(world, kSmallModel, small, kind);
        save_full(world, kModel, file, kind, 2);
      });
      return !testing::Test::HasFailure();
    })));
  }
}

TEST_F(MemoryBound, OfAConversionIsTheLargestTensor) {
  std::string source = path("model.safetensors");
  std::string small = path("small-model.safetensors");
  ASSERT_TRUE(succeeded(in_child([&] {
    run_ranks(1, [&](const std::shared_ptr<World>& world) {
      save_full(world, kSmallModel, small, CheckpointFormat::kSafetensors);
      save_full(world, kModel, source, CheckpointFormat::kSafetensors);
    });
    return true;
  })));
  for (const auto& [name, format] :
       {std::pair{"dcp", CheckpointFormat::kDcpDirectory},
        std::pair{"converted.pth", CheckpointFormat::kPth},
        std::pair{"ranks", CheckpointFormat::kPthPerRankDirectory},
        std::pair{"hf", CheckpointFormat::kHuggingFaceDirectory},
        std::pair{"again.safetensors", CheckpointFormat::kSafetensors}}) {
    ConvertOptions options;
    options.format = format;
    options.ranks = 2;
    options.config_path = path("config.json");
    const std::string to = path(name);
    const std::string small_to = path(std::string("small-") + name);
    EXPECT_TRUE(succeeded(in_child([&] {
      give_memory_back();
      at::set_num_threads(1);
      convert_checkpoint(small, small_to, options);
      return adds_at_most(1, source + " to " + to,
                          [&] { convert_checkpoint(source, to, options); });
    })));
    std::filesystem::remove_all(source);
    source = to;
    small = small_to;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
