// How the tests of checkpoints cut tensors over ranks.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/ranks/state_load.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {

using ckpt::StateDict;

// Rows [begin, begin + count) of a tensor.
struct Rows {
  int64_t begin;
  int64_t count;
};

// Ranks as a mesh, and a letter a dim of it: S cuts dim 0 as torch.chunk does, R does not.
struct Placing {
  std::vector<int64_t> mesh;
  std::string letters;

  Rows rows_of(int rank, int64_t rows) const {
    Rows own{0, rows};
    int64_t below = 1;
    for (const int64_t size : mesh) {
      below *= size;
    }
    for (size_t dim = 0; dim < mesh.size(); ++dim) {
      below /= mesh[dim];
      if (letters[dim] == 'S') {
        const int64_t chunk = (own.count + mesh[dim] - 1) / mesh[dim];
        const int64_t start = std::min(rank / below % mesh[dim] * chunk, own.count);
        own = {own.begin + start, std::min(chunk, own.count - start)};
      }
    }
    return own;
  }
};

inline const Placing kFlatReplicated{{4}, "R"};
inline const Placing kFlatSharded{{4}, "S"};
inline std::vector<Placing> placings_on_two_dims() {
  return {{{2, 2}, "RR"}, {{2, 2}, "RS"}, {{2, 2}, "SR"}, {{2, 2}, "SS"}};
}

// A copy of some rows of `full` as a chunk of the state.
inline void add_chunk(StateDict* state, const std::string& name, const at::Tensor& full,
                      const Rows& rows) {
  std::vector<int64_t> offsets(static_cast<size_t>(full.dim()), 0);
  offsets[0] = rows.begin;
  state->add_tensor({name}, full.sizes().vec(), offsets,
                    full.narrow(0, rows.begin, rows.count).clone());
}

// A state of one tensor, "t", as a rank holds it.
inline StateDict state_of(const at::Tensor& full, const Rows& rows) {
  StateDict state;
  add_chunk(&state, "t", full, rows);
  return state;
}
inline StateDict state_of(const at::Tensor& full, const Placing& placing, int rank) {
  return state_of(full, placing.rows_of(rank, full.size(0)));
}

inline void save_state(const WorldPtr& world, const StateDict& state,
                       const ckpt::ShardedSaveOptions& options) {
  ckpt::ShardedSaver(flat_mesh(world)).save(state, options);
}

// Loads into a state of zeros with these rows and expects the values of `full`.
inline void expect_rows_load(const WorldPtr& world, const std::string& path, const at::Tensor& full,
                             const Rows& rows) {
  StateDict state = state_of(at::zeros_like(full), rows);
  ckpt::load_state(*world, path, &state);
  EXPECT_TRUE(state.tensors[0].local.equal(full.narrow(0, rows.begin, rows.count)));
}

// Saves `full` on four ranks as placed by each of `from`, loads it as placed by each of `to`.
inline void expect_resharding(ckpt::ShardedSaveOptions options, const at::Tensor& full,
                              const std::vector<Placing>& from, const std::vector<Placing>& to) {
  const std::string base = options.path;
  run_ranks(4, [&](const WorldPtr& world) {
    for (const Placing& saved : from) {
      ckpt::ShardedSaveOptions where = options;
      where.path = base + "-" + saved.letters;
      save_state(world, state_of(full, saved, world->rank()), where);
      for (const Placing& wanted : to) {
        SCOPED_TRACE(saved.letters + " to " + wanted.letters);
        expect_rows_load(world, where.path, full, wanted.rows_of(world->rank(), full.size(0)));
      }
    }
  });
}

}  // namespace fsdp2::checklist
