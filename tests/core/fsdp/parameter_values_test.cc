// Values that are read for all by rank 0, or by each rank for itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdint>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/memory/kept_memory.h"
#include "core/nn/parameter_source.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

// Every element is 3; a name that it does not have is missing.
class Threes : public nn::ParameterSource {
 public:
  explicit Threes(std::set<std::string> missing = {}) : missing_(std::move(missing)) {}

  void read(const std::string& name, at::IntArrayRef /*shape*/, int64_t /*first_row*/,
            at::Tensor out) override {
    ++reads;
    FSDP2_CHECK(missing_.count(name) == 0, Code::kNotFound, "no parameter {}", name);
    out.fill_(3.0);
  }

  int reads = 0;

 private:
  std::set<std::string> missing_;
};

struct ShardedValues {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;
};

// Without values; the last block's first weight and bias are ignored.
ShardedValues shard(const std::shared_ptr<World>& world,
                    const TinyStackOptions& size = TinyStackOptions{4, 6, 2}) {
  ShardedValues sharded;
  sharded.model = std::make_shared<TinyStack>(size);
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*sharded.model)) {
    const at::Tensor& tensor = parameter.tensor;
    tensor.set_data(nn::deferred_parameter(tensor.sizes(), tensor.scalar_type()).detach());
  }
  const TinyLinear& ignored = *sharded.model->blocks.back()->in;
  Policy policy;
  policy.ignored = {ignored.weight, ignored.bias};
  sharded.root =
      fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
  return sharded;
}

constexpr int kParameters = 10;

TEST(LoadFromRankZero, TheOthersReadNothing) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world);
    Threes source;
    load_parameters(*s.root, source, LoadFrom::kRankZero);
    EXPECT_EQ(source.reads, world->rank() == 0 ? kParameters : 0);
    EXPECT_TRUE(s.model->blocks[1]->in->weight.eq(3.0).all().item<bool>());
    EXPECT_TRUE(s.model->blocks[1]->in->bias.eq(3.0).all().item<bool>());
    for (const ShardedParam* param : s.root->parameters()) {
      EXPECT_TRUE(param->local_values().eq(3.0).all().item<bool>()) << param->name();
    }
  });
}

TEST(LoadFromRankZero, AMissingIgnoredParameterIsEveryRanksErrorAndMayBeTriedAgain) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world);
    Threes broken({"block1.in.bias"});
    try {
      load_parameters(*s.root, broken, LoadFrom::kRankZero);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kNotFound : Code::kPeerFailed);
      EXPECT_NE(error.message().find("block1.in.bias"), std::string::npos) << error.message();
    }
    Threes source;
    load_parameters(*s.root, source, LoadFrom::kRankZero);
    EXPECT_TRUE(s.model->blocks[1]->in->bias.eq(3.0).all().item<bool>());
  });
}

// Memory is not zeroed before values are read into it, so nobody may see it without.
TEST(LoadByEveryRank, AFailedReadLeavesNoMemoryWithoutValuesAndMayBeTriedAgain) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      const ShardedValues s = shard(world);
      Threes broken({"block1.out.weight"});
      EXPECT_THROW(load_parameters(*s.root, broken), Error);
      for (const ShardedParam* param : s.root->parameters()) {
        if (param->name() == "block1.out.weight") {
          EXPECT_TRUE(nn::has_no_memory(param->stored()));
          EXPECT_TRUE(param->local_values().eq(0.0).all().item<bool>());
        }
      }
      Threes source;
      load_parameters(*s.root, source);
      EXPECT_EQ(source.reads, kParameters);
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_TRUE(param->local_values().eq(3.0).all().item<bool>()) << param->name();
      }
    });
  }
}

// Over 4 ranks, 6 rows are 2, 2, 2 and none.
TEST(LoadByEveryRank, PaddingIsZeros) {
  for (int i = 0; i < 2; ++i) {  // the second time in memory that was used
    run_ranks(4, [](const std::shared_ptr<World>& world) {
      const ShardedValues s = shard(world);
      Threes source;
      load_parameters(*s.root, source);
      for (const ShardedParam* param : s.root->parameters()) {
        const at::Tensor& flat = param->shard_flat();
        const int64_t used = param->layout().local_numel();
        EXPECT_TRUE(flat.narrow(0, used, flat.numel() - used).eq(0.0).all().item<bool>());
        flat.fill_(7.0);
      }
    });
  }
}

// Counts the pages that the system has given of large memory that is to be read into.
class PageCounter : public nn::ParameterSource {
 public:
  // Some systems say that all pages are there.
  static bool is_possible() {
    const at::Tensor untouched = at::empty({int64_t{64} << 20}, at::kByte);
    PageCounter counter;
    counter.count_pages(untouched);
    return counter.pages == 0;
  }

  void read(const std::string& /*name*/, at::IntArrayRef /*shape*/, int64_t /*first_row*/,
            at::Tensor out) override {
    if (out.nbytes() >= memory::kLargeBytes) {
      ++large_reads;
      count_pages(out);
    }
    out.fill_(3.0);
  }

  int large_reads = 0;
  int64_t pages = 0;

 private:
  void count_pages(const at::Tensor& out) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(out.data_ptr()) + page - 1) / page * page;
    std::vector<unsigned char> given(out.nbytes() / page - 1);
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), given.size() * page, given.data()), 0);
    for (const unsigned char each : given) {
      pages += each & 1;
    }
  }
};

TEST(LoadByEveryRank, ReadsIntoMemoryThatNobodyHasTouched) {
  if (!PageCounter::is_possible()) {
    GTEST_SKIP() << "this system does not tell which pages there are";
  }
  // A huge page may reach into the next parameter's memory.
  EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  memory::keep_memory(true);
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedValues s = shard(world, {1024, 2048, 1});
    world->control().barrier();
    if (world->rank() == 0) {  // what the model took goes back to the system
      memory::keep_memory(false);
      memory::keep_memory(true);
    }
    world->control().barrier();
    PageCounter source;
    load_parameters(*s.root, source);
    EXPECT_GE(source.large_reads, 2);
    EXPECT_EQ(source.pages, 0);
  });
  memory::keep_memory(false);
  EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

}  // namespace
}  // namespace fsdp2::fsdp
