// The tokens that images and videos stand in for: which they are, whether there are as many as the
// grids say, and the positions of all tokens around them, as the transformers library's
// get_rope_index makes them.
//
// Shapes: B batch, S sequence, T tokens of all images or videos.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/models/vision/patch_grids.h"

namespace fsdp2::models {

// Tokens that lie together: so many rows x columns for each frame.
struct TokenBlock {
  int64_t frames;
  int64_t rows;
  int64_t columns;
  int64_t frame_step;    // between the positions in time of two frames
  bool goes_on = false;  // with the grid of the block before it

  int64_t tokens() const { return frames * rows * columns; }
};

// The blocks of one kind, images or videos, in the order in which they come in the batch.
struct VisionTokens {
  int64_t token;     // in their places
  const char* name;  // of their grids, for messages
  std::vector<TokenBlock> blocks;

  int64_t count() const;
};

// tokens [B,S] on the host. Error: kInvalidArgument, with the first block that the tokens have no
// place for, or the first place that no block is left for. A grid's blocks are within one row.
void check_vision_tokens(const at::Tensor& tokens, const std::vector<VisionTokens>& kinds);

// Where the tokens of a kind are among all B * S: [T] int64, on the device of the tokens, for which
// the host does not wait.
at::Tensor places_of(const at::Tensor& tokens, const VisionTokens& kind);

// The positions in time, height and width of all tokens: [3,B,S] int64, on the device of the
// tokens. Each text token is one further than what is before it, in all three; a block begins there
// and counts its frames, rows and columns; what follows is one further than the block's furthest.
// mask: as LanguageModel has it, or undefined. Padding takes no position, and each of the sequences
// that are packed into a row counts from 0.
at::Tensor positions_around(const at::Tensor& tokens, const std::vector<VisionTokens>& kinds,
                            const at::Tensor& mask);

}  // namespace fsdp2::models
