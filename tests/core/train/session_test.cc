// A module's way from plain to sharded, and what failures on it leave behind.
#include "core/train/session.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using State = Session::State;

constexpr char kCall[] = "the call";

// Gives every value 7, and fails after so many reads.
class Sevens : public nn::ParameterSource {
 public:
  explicit Sevens(int reads = 1 << 20) : left_(reads) {}

  void read(const std::string& name, at::IntArrayRef /*shape*/, int64_t /*first_row*/,
            at::Tensor out) override {
    FSDP2_CHECK(left_-- > 0, Code::kIo, "{}: the disk is gone", name);
    ++reads;
    out.fill_(7);
  }

  std::vector<std::string> unused(const std::vector<std::string>& parameters) const override {
    std::vector<std::string> unused;
    for (const std::string& name : further) {
      if (std::count(parameters.begin(), parameters.end(), name) == 0) {
        unused.push_back(name);
      }
    }
    return unused;
  }

  std::string mark_of(const std::string& name) const override {
    const auto mark = marks.find(name);
    return mark == marks.end() ? "seven" : mark->second;
  }

  int reads = 0;
  std::vector<std::string> further;  // tensors that it holds, those of the module among them
  std::map<std::string, std::string> marks;  // of tensors that are not as the others

 private:
  int left_;
};

// One weight, without memory.
class Deferred : public nn::Module {
 public:
  Deferred() : nn::Module("Deferred") {
    weight = register_parameter("weight", nn::deferred_parameter({4, 2}, at::kFloat));
  }
  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return at::matmul(inputs[0].toTensor(), weight);
  }
};

// A model and its session, with the calls of one rank.
struct Job {
  explicit Job(const std::shared_ptr<World>& world, const TinyStackOptions& options = {},
               std::shared_ptr<nn::ParameterSource> source = nullptr)
      : mesh(Mesh::for_fsdp(world, 0)),
        session(
            std::make_shared<Session>(std::make_shared<TinyStack>(options), std::move(source))) {}

  void make_unit(const std::vector<std::string>& paths, const ShardOptions& options = {}) {
    Session::make_unit(mesh, kCall, [&] { return ShardRequest{session, options, paths, ""}; });
  }
  std::shared_ptr<fsdp::Unit> shard(const ShardOptions& options = {},
                                    const std::string& text = "") {
    return Session::shard(mesh, kCall, [&] { return ShardRequest{session, options, {}, text}; });
  }

  std::shared_ptr<Mesh> mesh;
  std::shared_ptr<Session> session;
};

bool says(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

ShardOptions wrapping(std::vector<std::string> names) {
  ShardOptions options;
  options.wrap_names = std::move(names);
  return options;
}

TEST(Session, UnitsAndThenTheWholeAreSharded) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Job job(world);
    EXPECT_EQ(job.session->state(), State::kPlain);
    job.make_unit({"block0"});
    job.make_unit({"block1.in", "block1", "block2"});
    EXPECT_EQ(job.session->state(), State::kUnitsMade);
    const auto root = job.shard();
    EXPECT_EQ(job.session->state(), State::kSharded);
    std::vector<std::string> names;
    for (const auto& unit : root->units()) {
      names.push_back(unit->name());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"", "block0", "block1"}));
  });
}

// What two ranks are warned of that shard a stack by these options.
std::vector<std::string> warnings_of(const ShardOptions& options, int ranks = 2,
                                     const Sevens& values = Sevens(),
                                     const TinyStackOptions& stack = {}) {
  std::vector<std::string> warnings;
  set_log_sink(LogLevel::kWarning,
               [&](const LogRecord& record) { warnings.push_back(record.message); });
  run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    Job(world, stack, std::make_shared<Sevens>(values)).shard(options);
  });
  set_log_sink(LogLevel::kWarning, {});
  return warnings;
}

TEST(Session, AWholeOfOneUnitIsToldWithTheRemedyUnlessAskedFor) {
  EXPECT_EQ(
      warnings_of({}),
      std::vector<std::string>{
          "TinyStack is one unit, gathered as a whole: no module in it is a unit of its own; name "
          "classes in options.wrap_kinds (there are TinyBlock, TinyLinear), or set options.wrap to "
          "FSDP2_WRAP_NONE if that is meant"});
  ShardOptions by_size;
  by_size.wrap_min_numel = 1000000;
  EXPECT_EQ(
      warnings_of(by_size),
      std::vector<std::string>{
          "TinyStack is one unit, gathered as a whole: no module in it is a unit of its own; name "
          "classes in options.wrap_kinds (there are TinyBlock, TinyLinear), lower "
          "options.wrap_min_numel (1000000), or set options.wrap to FSDP2_WRAP_NONE if that is "
          "meant"});
  ShardOptions asked;
  asked.wrap_kinds.emplace();
  EXPECT_TRUE(warnings_of(asked).empty());
  EXPECT_TRUE(warnings_of(wrapping({"block0"})).empty());
  EXPECT_TRUE(warnings_of({}, /*ranks=*/1).empty());
}

TEST(Session, WeightsThatNoParameterTakesAreToldOnce) {
  Sevens values;
  values.further = {"block0.in.weight", "block7.in.weight", "head"};
  EXPECT_EQ(
      warnings_of(wrapping({"block0"}), 2, values),
      std::vector<std::string>{
          "tensors among the weights are not used, since the model has no such parameter (2): "
          "block7.in.weight, head; see whether config.json is that of these weights"});
  values.further = {"block0.in.weight"};
  EXPECT_TRUE(warnings_of(wrapping({"block0"}), 2, values).empty());
}

TEST(Session, WeightsOfATieThatDifferAreToldOnce) {
  TinyStackOptions tied;
  tied.inner = tied.width;
  tied.tied = true;
  Sevens values;
  EXPECT_TRUE(warnings_of(wrapping({"block0"}), 2, values, tied).empty());
  values.marks["block2.out.weight"] = "eight";
  EXPECT_EQ(warnings_of(wrapping({"block0"}), 2, values, tied),
            std::vector<std::string>{
                "block2.out.weight among the weights is not used, since the model ties it to "
                "embedding, which has other values or another dtype; see whether config.json is "
                "that of these "
                "weights"});
  EXPECT_TRUE(warnings_of(wrapping({"block0"}), 2, values).empty());
}

TEST(Session, WhatIsShardedIsNotShardedAgain) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Job job(world);
    job.shard();
    EXPECT_EQ(error_of([&] { job.shard(); }).code(), Code::kWrongState);
    EXPECT_EQ(error_of([&] { job.make_unit({"block0"}); }).code(), Code::kWrongState);
    EXPECT_EQ(job.session->state(), State::kSharded);
    job.session->check_usable();
  });
}

TEST(Session, UnitsAndTheWholeHaveMeshesOfOneJob) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Job job(world);
    job.make_unit({"block0"});
    WorldOptions alone;
    alone.backend = BackendKind::kFake;
    alone.world_size = 2;
    job.mesh = Mesh::for_fsdp(World::join(alone), 0);
    const Error error = error_of([&] { job.shard(); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_TRUE(says(error, "which modules of this one are sharded over")) << error.message();
    EXPECT_EQ(job.session->state(), State::kUnitsMade);
    job.mesh = Mesh::create(world, {2, 1}, {"ddp", "fsdp"});
    job.shard();
    EXPECT_EQ(job.session->state(), State::kSharded);
  });
}

TEST(Session, AModuleOfWhichOnlyUnitsAreShardedDoesNotRun) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Job job(world);
    job.make_unit({"block0"});
    EXPECT_EQ(error_of([&] { job.session->materialize(); }).code(), Code::kWrongState);
  });
}

TEST(Session, ValuesAreReadOnceByAModuleThatIsNotSharded) {
  const auto module = std::make_shared<Deferred>();
  const auto source = std::make_shared<Sevens>();
  Session session(module, source);
  session.materialize();
  session.materialize();
  EXPECT_EQ(source->reads, 1);
  EXPECT_TRUE(at::equal(module->weight.detach(), at::full({4, 2}, 7.0)));
  EXPECT_EQ(session.state(), State::kPlain);
}

TEST(Session, OnlyAShardedModuleAwaitsDeferredValues) {
  const Session session(std::make_shared<Deferred>(), std::make_shared<Sevens>());
  EXPECT_EQ(error_of([&] { session.check_awaits_values(); }).code(), Code::kWrongState);
}

TEST(Session, ValuesThatCannotBeReadSpoilIt) {
  Session session(std::make_shared<Deferred>(), std::make_shared<Sevens>(0));
  EXPECT_EQ(error_of([&] { session.materialize(); }).code(), Code::kIo);
  EXPECT_EQ(session.state(), State::kSpoiled);
  const Error error = error_of([&] { session.check_usable(); });
  EXPECT_EQ(error.code(), Code::kWrongState);
  EXPECT_TRUE(says(error, "half-way")) << error.message();
}

TEST(Session, ShardingReadsTheValuesUnlessTheyAreDeferred) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    for (const bool defer : {false, true}) {
      const auto source = std::make_shared<Sevens>();
      Job job(world, {}, source);
      ShardOptions options;
      options.defer_values = defer;
      const auto root = job.shard(options);
      EXPECT_EQ(source->reads > 0, !defer);
      if (defer) {
        job.session->check_awaits_values();
        job.session->load_values();
      }
      EXPECT_TRUE(at::all(root->parameters().front()->sharded().detach() == 7).item<bool>());
      EXPECT_EQ(error_of([&] { job.session->check_awaits_values(); }).code(), Code::kWrongState);
    }
  });
}

TEST(Session, OptionsThatCannotBeChangeNothing) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Job job(world);
    EXPECT_EQ(error_of([&] { job.shard(wrapping({"block9"})); }).code(), Code::kNotFound);
    EXPECT_EQ(error_of([&] { job.make_unit({"block9"}); }).code(), Code::kNotFound);
    ShardOptions options;
    options.ignored_names = {"no.such"};
    EXPECT_EQ(error_of([&] { job.shard(options); }).code(), Code::kNotFound);
    options = {};
    options.wrap_kinds = std::vector<std::string>{"NoSuchKind"};
    EXPECT_TRUE(says(error_of([&] { job.shard(options); }), "there are TinyBlock, TinyLinear"));
    options = {};
    options.policy.shard_dim = [](const std::string& /*name*/, const at::Tensor& parameter) {
      return static_cast<int>(parameter.dim());
    };
    EXPECT_TRUE(says(error_of([&] { job.shard(options); }), "options.shard_dim: parameter"));
    EXPECT_EQ(job.session->state(), State::kPlain);
    job.shard(wrapping({"block0"}));
    EXPECT_EQ(job.session->state(), State::kSharded);
  });
}

TEST(Session, AChangeThatFailsBeforeItChangesAnythingIsTakenBack) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Job job(world);
    job.make_unit({"block0"});
    // Its parameters are in a unit already.
    const Error error = error_of([&] { job.make_unit({"block0.in"}); });
    EXPECT_EQ(error.code(), Code::kWrongState);
    EXPECT_TRUE(says(error, "names 'block0.in'")) << error.message();
    EXPECT_EQ(job.session->state(), State::kUnitsMade);
    job.shard();
    EXPECT_EQ(job.session->state(), State::kSharded);
  });
}

TEST(Session, AChangeThatFailsHalfWaySpoilsIt) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    TinyStackOptions tied;
    tied.inner = tied.width;
    tied.tied = true;
    Job job(world, tied);
    job.make_unit({"block2"});
    EXPECT_TRUE(says(error_of([&] { job.shard(); }), "the tied parameter"));
    EXPECT_EQ(job.session->state(), State::kSpoiled);
    EXPECT_EQ(error_of([&] { job.shard(); }).code(), Code::kWrongState);
  });
}

TEST(Session, ValuesThatCannotBeReadSpoilAShardedModule) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const int reads = world->rank() == 0 ? 1 : 1 << 20;
    Job job(world, {}, std::make_shared<Sevens>(reads));
    const Error error = error_of([&] { job.shard(); });
    EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kIo : Code::kPeerFailed);
    EXPECT_TRUE(says(error, "the disk is gone")) << error.message();
    EXPECT_EQ(job.session->state(), State::kSpoiled);
  });
}

TEST(Session, RanksThatDifferAreToldInWhatAndCanPutItRight) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const std::string rank = std::to_string(world->rank());
    Job job(world);
    Error error = error_of([&] { job.shard(wrapping({"block" + rank})); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_TRUE(says(error, "wrap_names: rank 0 has block0, rank 1 has block1")) << error.message();
    error = error_of([&] { job.shard({}, "seed=" + rank + "\n"); });
    EXPECT_TRUE(says(error, "seed: rank 0 has 0, rank 1 has 1")) << error.message();
    error = error_of([&] { job.make_unit({"block" + rank}); });
    EXPECT_TRUE(says(error, "modules: rank 0 has block0, rank 1 has block1")) << error.message();
    EXPECT_EQ(job.session->state(), State::kPlain);
    job.shard();
  });
}

TEST(Session, RanksWithOtherModelsAreToldInWhichParameter) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    TinyStackOptions options;
    options.frozen_bias = world->rank() == 1;
    Job job(world, options);
    const Error error = error_of([&] { job.shard(); });
    EXPECT_TRUE(says(error, "block0.in.bias: rank 0 has Float 7, rank 1 has Float 7 frozen"))
        << error.message();
    EXPECT_EQ(job.session->state(), State::kPlain);
  });
}

TEST(Session, ARankThatCannotSayWhatItIsAskedForTellsTheOthers) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Job job(world);
    const Error error = error_of([&] {
      Session::shard(job.mesh, kCall, [&] {
        FSDP2_CHECK(world->rank() == 0, Code::kStaleHandle, "the module is gone");
        return ShardRequest{job.session, {}, {}, ""};
      });
    });
    EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kPeerFailed : Code::kStaleHandle);
    EXPECT_TRUE(says(error, "the module is gone")) << error.message();
    EXPECT_EQ(job.session->state(), State::kPlain);
    job.shard();
  });
}

}  // namespace
}  // namespace fsdp2::train
