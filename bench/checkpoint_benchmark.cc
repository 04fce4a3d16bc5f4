// Saves and loads a state of tensors on the ranks of a job; rank 0 prints one JSON line.
//
//   fsdp2 run --nproc-per-node 2 -- checkpoint_benchmark DIRECTORY BYTES REPEATS
//
// Each save makes a directory of its own, DIRECTORY/ours..., which must not be there: to replace
// one would also wait for the old one's removal. Times are those of the slowest rank, the best of
// all repeats, in seconds.
//   save   until everything is synced to disk and has its final name
//   stall  of a save in the background: until training could go on
//   first_stall  of the first one of a run, for which the memory has been made ahead
//   copy   of this rank's part of the state, memory to memory
//   load   of everything, from the page cache, checksums compared
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/state/state_source.h"
#include "core/comm/mesh.h"
#include "core/comm/world.h"

namespace fsdp2 {
namespace {

constexpr int64_t kColumns = 1024;
constexpr int64_t kTensors = 64;

// This rank's rows of so many float tensors of `bytes` in all.
ckpt::StateDict make_state(const World& world, int64_t bytes) {
  const int64_t rows = bytes / kTensors / kColumns / 4 / world.size() * world.size();
  const int64_t own = rows / world.size();
  ckpt::StateDict state;
  for (int64_t i = 0; i < kTensors; ++i) {
    state.add_tensor({"model", fmt::format("layer.{}.weight", i)}, {rows, kColumns},
                     {world.rank() * own, 0}, at::rand({own, kColumns}));
  }
  return state;
}

// Seconds that the slowest rank takes.
double time_of(World& world, const std::function<void()>& action) {
  world.control().barrier();
  const auto start = std::chrono::steady_clock::now();
  action();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const at::Tensor slowest = at::full({1}, taken.count(), at::kDouble);
  world.control().all_reduce(slowest, ReduceOp::kMax).wait();
  return slowest.item<double>();
}

void load(const std::string& path, const ckpt::StateDict& state) {
  const auto source = ckpt::open_checkpoint(path);
  for (const ckpt::StateTensor& tensor : state.tensors) {
    source->read(*source->find(tensor.name), tensor.offsets, tensor.local);
  }
}

void run(const std::string& directory, int64_t bytes, int repeats) {
  const std::shared_ptr<World> world = World::join({});
  ckpt::StateDict state = make_state(*world, bytes);
  std::vector<at::Tensor> copies;
  for (const ckpt::StateTensor& tensor : state.tensors) {
    copies.push_back(tensor.local.clone());
  }
  ckpt::ShardedSaver saver(Mesh::for_fsdp(world, 0));
  saver.reserve(state);  // made ready while the first save writes
  double save = 1e9;
  double stall = 1e9;
  double first_stall = 0;
  double copy = 1e9;
  double loading = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const std::string path = fmt::format("{}/ours{}", directory, i);
    save = std::min(save, time_of(*world, [&] { saver.save(state, {path}); }));
    loading = std::min(loading, time_of(*world, [&] { load(path, state); }));
    copy = std::min(copy, time_of(*world, [&] {
                      for (size_t j = 0; j < copies.size(); ++j) {
                        copies[j].copy_(state.tensors[j].local);
                      }
                    }));
    const double stalled = time_of(*world, [&] { saver.start(state, {path + "-background"}); });
    first_stall = i == 0 ? stalled : first_stall;
    stall = std::min(stall, stalled);
    saver.wait();
  }
  if (world->rank() == 0) {
    fmt::print(
        "{{\"save\": {:.4f}, \"load\": {:.4f}, \"copy\": {:.4f}, \"stall\": {:.4f}, "
        "\"first_stall\": {:.4f}}}\n",
        save, loading, copy, stall, first_stall);
  }
}

}  // namespace
}  // namespace fsdp2

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: checkpoint_benchmark DIRECTORY BYTES REPEATS\n", stderr);
    return 2;
  }
  try {
    fsdp2::run(argv[1], std::atoll(argv[2]), std::atoi(argv[3]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_benchmark: %s\n", error.what());
    return 1;
  }
}
