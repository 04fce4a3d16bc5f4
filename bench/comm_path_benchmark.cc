// From which size on a parameter is better gathered and reduced straight from its storage than
// through a packed buffer: what kDirectBytes in core/fsdp/group/collectives.h stands on.
//
//   ./bazelw run //bench:comm_path_benchmark
//
// Two ranks over Gloo on this machine, each a thread. One unit holds 8 parameters of one size; the
// table gives the median time of an all-gather and a reduction of the unit by either path.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/fsdp/group/collectives.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

constexpr int kParameters = 8;
constexpr int kRuns = 31;

class Parameters : public nn::Module {
 public:
  explicit Parameters(int64_t rows) : nn::Module("Parameters") {
    for (int i = 0; i < kParameters; ++i) {
      register_parameter("p" + std::to_string(i), at::ones({rows, 64}));
    }
  }

 protected:
  c10::IValue forward(nn::Values inputs) override { return inputs.at(0); }
};

template <typename Body>
double median_us(World& world, Body body) {
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    world.control().barrier();
    const auto start = std::chrono::steady_clock::now();
    body();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

struct Times {
  double gather;
  double reduce;
};

Times measure(const std::shared_ptr<World>& world, int64_t rows, fsdp::CommPath path) {
  auto module = std::make_shared<Parameters>(rows);
  fsdp::Policy policy;
  policy.comm_path = path;
  const auto unit = fsdp::fully_shard(module, Mesh::for_fsdp(world, 0), policy);
  fsdp::ParamGroup& group = *unit->group();
  const double gather = median_us(*world, [&] {
    group.start_unshard();
    group.wait_unshard();
    group.reshard();
  });
  const double reduce = median_us(*world, [&] {
    for (const fsdp::ShardedParam* param : group.params()) {
      const_cast<at::Tensor&>(param->unsharded()).mutable_grad() =
          at::ones(param->layout().global_shape);
    }
    group.start_reduce();
    group.finish_reduce();
  });
  return {gather, reduce};
}

void run(const std::shared_ptr<World>& world) {
  if (world->rank() == 0) {
    printf("%14s  %14s %14s  %14s %14s\n", "bytes each", "gather direct", "packed", "reduce direct",
           "packed (us)");
  }
  for (int64_t rows = 16; rows <= 16384; rows *= 4) {
    const Times direct = measure(world, rows, fsdp::CommPath::kDirect);
    const Times packed = measure(world, rows, fsdp::CommPath::kPacked);
    if (world->rank() == 0) {
      printf("%14lld  %14.0f %14.0f  %14.0f %14.0f\n", static_cast<long long>(rows * 64 * 4),
             direct.gather, packed.gather, direct.reduce, packed.reduce);
    }
  }
}

}  // namespace
}  // namespace fsdp2

int main() {
  fsdp2::RankOptions options;
  options.backend = fsdp2::BackendKind::kGloo;
  fsdp2::run_ranks(2, fsdp2::run, options);
  return 0;
}
