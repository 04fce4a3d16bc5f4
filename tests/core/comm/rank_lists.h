// Lists of ranks, and where a mesh has its own, for the lines of the parity checklist on meshes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/comm/mesh.h"
#include "core/comm/world.h"

namespace fsdp2::checklist {

using Ranks = std::vector<int>;
using WorldPtr = std::shared_ptr<World>;

inline Ranks range(int first, int end, int step = 1) {
  Ranks ranks;
  for (int rank = first; rank < end; rank += step) {
    ranks.push_back(rank);
  }
  return ranks;
}

inline void expect_same_place(const Mesh& a, const Mesh& b) {
  EXPECT_EQ(a.ranks(), b.ranks());
  EXPECT_EQ(a.coordinate(0), b.coordinate(0));
  EXPECT_EQ(a.group(0), b.group(0));
}

}  // namespace fsdp2::checklist
