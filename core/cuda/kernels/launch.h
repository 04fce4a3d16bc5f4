// How the launchers of this folder choose a grid and the width of packs.
#pragma once

#include <cstdint>

#include "core/cuda/math/pack.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

inline constexpr int kThreads = 256;  // of a block

inline unsigned blocks_for(int64_t count, int64_t of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

inline int whole_warps(int threads) { return (threads + kWarp - 1) / kWarp * kWarp; }

template <typename... Pointers>
bool on_pack_borders(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kPackBytes == 0) && ...);
}

// Calls launch(width) with the width of packs of T, or with 1.
template <typename T, typename Launch>
void with_width(bool in_packs, const Launch& launch) {
  if (in_packs) {
    launch(Width<kPackWidth<T>>());
  } else {
    launch(Width<1>());
  }
}

}  // namespace fsdp2::cuda
