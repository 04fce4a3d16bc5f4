// What a unit costs the host: the steps of one small model, as a unit a block and as one unit, in
// turn.
//
//   ./bazelw run //bench:unit_benchmark -- [ranks] [blocks] [rounds]
//
// The ranks are threads. A figure is the processor time of the first one's thread, which runs
// forward and backward and what belongs to collectives; the difference of the fastest rounds of the
// two, by the number of blocks, is the cost of a unit. For one rank the model without any unit
// ("plain") is shown, too.
#include <ATen/ATen.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2 {
namespace {

constexpr int kStepsARound = 10;

struct Case {
  std::string name;
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<fsdp::Unit> root;  // null: plain
  std::vector<double> us{};          // a step, by round
};

double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void step(const Case& one, const at::Tensor& batch) {
  (*one.model)(batch).sum().backward();
  if (one.root) {
    one.root->zero_grad();
  } else {
    one.model->zero_grad();
  }
}

void measure(Case& one, const at::Tensor& batch) {
  const double begin = thread_us();
  for (int i = 0; i < kStepsARound; ++i) {
    step(one, batch);
  }
  one.us.push_back((thread_us() - begin) / kStepsARound);
}

double fastest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(const std::shared_ptr<World>& world, int64_t blocks, int rounds) {
  const TinyStackOptions options{8, 16, blocks};
  const auto mesh = Mesh::for_fsdp(world, 0);
  std::vector<Case> cases;
  if (world->size() == 1) {
    cases.push_back({"plain", std::make_shared<TinyStack>(options), nullptr});
  }
  const auto as_one = std::make_shared<TinyStack>(options);
  cases.push_back({"one unit", as_one, fsdp::fully_shard(as_one, mesh, {})});
  const auto split = std::make_shared<TinyStack>(options);
  cases.push_back(
      {"a unit a block", split, fsdp::fully_shard_by_kind(split, mesh, {}, {"TinyBlock"})});
  const at::Tensor batch = at::ones({4, options.width});
  for (const Case& one : cases) {
    step(one, batch);
  }
  for (int round = 0; round < rounds; ++round) {
    for (Case& one : cases) {
      measure(one, batch);
    }
  }
  if (world->rank() != 0) {
    return;
  }
  for (const Case& one : cases) {
    std::printf("%-16s %10.0f us a step (median %.0f)\n", one.name.c_str(), fastest(one.us),
                median(one.us));
  }
  const double difference = fastest(cases.back().us) - fastest(cases[cases.size() - 2].us);
  std::printf("%-16s %10.1f us\n", "a unit", difference / static_cast<double>(blocks));
}

}  // namespace
}  // namespace fsdp2

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::atoi(argv[at]) : otherwise;
  };
  const int ranks = number(1, 1);
  const int blocks = number(2, 200);
  const int rounds = number(3, 15);
  fsdp2::run_ranks(ranks, [&](const std::shared_ptr<fsdp2::World>& world) {
    fsdp2::run(world, blocks, rounds);
  });
  return 0;
}
