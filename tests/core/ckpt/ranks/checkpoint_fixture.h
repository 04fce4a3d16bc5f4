// Small states in DCP directories of ours, for tests of saving and loading.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/state/state_source.h"
#include "core/comm/mesh.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2::ckpt {

// This rank's rows of `full`, as torch.chunk cuts them.
inline void add_rows(StateDict* state, StatePath path, const at::Tensor& full, int rank,
                     int world) {
  const int64_t rows = full.size(0);
  const int64_t chunk = (rows + world - 1) / world;
  const int64_t begin = std::min(rank * chunk, rows);
  std::vector<int64_t> offsets(static_cast<size_t>(full.dim()), 0);
  offsets[0] = begin;
  state->add_tensor(std::move(path), full.sizes().vec(), offsets,
                    full.narrow(0, begin, std::min(chunk, rows - begin)).clone());
}

// Tensors whose elements follow from `seed`: rows 7 x 3, five bf16 numbers, a scalar, and objects.
inline StateDict example_state(int rank, int world, int64_t seed) {
  const auto base = static_cast<double>(seed);
  StateDict state;
  add_rows(&state, {"model", "a.weight"}, at::arange(21, at::kFloat).view({7, 3}) + base, rank,
           world);
  add_rows(&state, {"model", "b"}, (at::arange(5, at::kFloat) + base).to(at::kBFloat16), rank,
           world);
  state.add_whole({"optim", "state", "b", "step"}, at::scalar_tensor(base, at::kFloat));
  state.add_object({"step"}, seed);
  state.add_object({"optim", "param_groups", int64_t{0}, "betas"}, PythonTuple{{0.9, 0.999}});
  return state;
}

inline at::Tensor read_whole(const StateSource& source, const std::string& name) {
  const StateEntry* entry = source.find(name);
  EXPECT_NE(entry, nullptr) << name;
  at::Tensor tensor = at::empty(entry->shape, *entry->dtype);
  source.read(*entry, std::vector<int64_t>(entry->shape.size(), 0), tensor);
  return tensor;
}

// Whether all values are those of example_state(seed).
inline bool holds_example(const StateSource& source, int64_t seed) {
  const StateDict expected = example_state(0, 1, seed);
  return std::all_of(expected.tensors.begin(), expected.tensors.end(),
                     [&](const StateTensor& tensor) {
                       return at::equal(read_whole(source, tensor.name), tensor.local);
                     }) &&
         std::all_of(expected.objects.begin(), expected.objects.end(),
                     [&](const StateObject& object) {
                       const StateEntry* entry = source.find(object.name);
                       return entry != nullptr && source.read_object(*entry) == object.value;
                     });
}

// Saves the example with thread ranks.
inline void save_example(const std::string& path, int world_size, int64_t seed) {
  run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    saver.save(example_state(world->rank(), world->size(), seed), {path});
  });
}

}  // namespace fsdp2::ckpt
