#include "core/models/vision_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/nn/layers/packed_sequences.h"

namespace fsdp2::models {

namespace {

// What the tokens of all blocks of a kind add to where their block begins, and how much further the
// last token of each block takes what follows.
struct BlockTables {
  at::Tensor offsets;   // [3,T]
  at::Tensor advances;  // [T]
};

BlockTables tables_of(const VisionTokens& kind, at::Device device) {
  const int64_t count = kind.count();
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  const at::Tensor offsets = at::zeros({3, count}, on_host);
  const at::Tensor advances = at::zeros({count}, on_host);
  auto* time = offsets.mutable_data_ptr<int64_t>();
  auto* row = time + count;
  auto* column = row + count;
  int64_t token = 0;
  for (const TokenBlock& block : kind.blocks) {
    for (int64_t i = 0; i < block.tokens(); ++i, ++token) {
      const int64_t in_frame = i % (block.rows * block.columns);
      time[token] = i / (block.rows * block.columns) * block.frame_step;
      row[token] = in_frame / block.columns;
      column[token] = in_frame % block.columns;
    }
    advances.mutable_data_ptr<int64_t>()[token - 1] =
        1 + std::max({(block.frames - 1) * block.frame_step, block.rows - 1, block.columns - 1});
  }
  return {offsets.to(device, /*non_blocking=*/true), advances.to(device, /*non_blocking=*/true)};
}

// By token of the batch, where its sequence begins: [B * S] int64, on the host.
at::Tensor begins_of(const std::vector<int64_t>& boundaries) {
  std::vector<int64_t> begins;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    begins.insert(begins.end(), static_cast<size_t>(boundaries[i + 1] - boundaries[i]),
                  boundaries[i]);
  }
  return at::tensor(begins, at::device(at::kCPU).dtype(at::kLong));
}

// Row by row, where each place of the tokens of the kinds is taken by which token of a block.
class PlacedBlocks {
 public:
  PlacedBlocks(const int64_t* tokens, int64_t length, const VisionTokens& kind)
      : tokens_(tokens), length_(length), kind_(kind) {}

  // Returns the first place of the row behind the block that begins at this one.
  int64_t take(int64_t row, int64_t begin) {
    FSDP2_CHECK(
        !kind_.blocks.empty(), Code::kInvalidArgument,
        "{}: expected grids for the tokens {}, the first of which is at position [{}, {}] of "
        "the tokens, found none",
        kind_.name, kind_.token, row, begin);
    FSDP2_CHECK(next_ < kind_.blocks.size(), Code::kInvalidArgument,
                "{}: expected {} tokens {} (those of {} blocks), but there is one more at position "
                "[{}, {}] of the tokens",
                kind_.name, kind_.count(), kind_.token, kind_.blocks.size(), row, begin);
    const TokenBlock& block = kind_.blocks[next_];
    int64_t end = begin;
    while (end < length_ && end - begin < block.tokens() &&
           tokens_[row * length_ + end] == kind_.token) {
      ++end;
    }
    FSDP2_CHECK(
        end - begin == block.tokens(), Code::kInvalidArgument,
        "{}: expected {} tokens {} in a row for block {} ({} x {} x {} after merging), found "
        "{} from position [{}, {}] of the tokens on",
        kind_.name, block.tokens(), kind_.token, next_, block.frames, block.rows, block.columns,
        end - begin, row, begin);
    FSDP2_CHECK(
        !block.goes_on || row == row_, Code::kInvalidArgument,
        "{}: expected the tokens {} of all frames of a grid in one row, found those of block "
        "{} in rows {} and {} of the tokens",
        kind_.name, kind_.token, next_, row_, row);
    row_ = row;
    ++next_;
    return end;
  }

  void check_all_are_taken() const {
    FSDP2_CHECK(next_ == kind_.blocks.size(), Code::kInvalidArgument,
                "{}: expected {} tokens {} (those of {} blocks), found those of the first {} only",
                kind_.name, kind_.count(), kind_.token, kind_.blocks.size(), next_);
  }

 private:
  const int64_t* tokens_;
  int64_t length_;
  const VisionTokens& kind_;
  size_t next_ = 0;
  int64_t row_ = 0;  // of the block before
};

}  // namespace

int64_t VisionTokens::count() const {
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0},
                         [](int64_t sum, const TokenBlock& block) { return sum + block.tokens(); });
}

void check_vision_tokens(const at::Tensor& tokens, const std::vector<VisionTokens>& kinds) {
  const at::Tensor rows = tokens.contiguous();
  const auto* values = rows.const_data_ptr<int64_t>();
  const int64_t length = tokens.size(1);
  std::vector<PlacedBlocks> placed;
  for (const VisionTokens& kind : kinds) {
    placed.emplace_back(values, length, kind);
  }
  for (int64_t row = 0; row < tokens.size(0); ++row) {
    for (int64_t place = 0; place < length;) {
      const int64_t token = values[row * length + place];
      const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                     [&](const VisionTokens& each) { return each.token == token; });
      place = kind == kinds.end()
                  ? place + 1
                  : placed[static_cast<size_t>(kind - kinds.begin())].take(row, place);
    }
  }
  for (const PlacedBlocks& each : placed) {
    each.check_all_are_taken();
  }
}

at::Tensor places_of(const at::Tensor& tokens, const VisionTokens& kind) {
  // The size is known, so that the host waits for no device. Where tokens that nobody has looked
  // at, on a device, have another number of places, the wrong ones are taken, but none outside.
  return at::nonzero_static(tokens.flatten().eq(kind.token), kind.count(), /*fill_value=*/0)
      .squeeze(1);
}

at::Tensor positions_around(const at::Tensor& tokens, const std::vector<VisionTokens>& kinds,
                            const at::Tensor& mask) {
  const bool has_padding = mask.defined() && mask.dim() == 2;
  at::Tensor advances = at::ones_like(tokens);
  at::Tensor offsets = at::zeros({3, tokens.size(0), tokens.size(1)}, tokens.options());
  for (const VisionTokens& kind : kinds) {
    if (kind.blocks.empty()) {
      continue;
    }
    const BlockTables tables = tables_of(kind, tokens.device());
    const at::Tensor is_kind = tokens.eq(kind.token);
    // Which of the kind's tokens each is; anything within bounds for the others.
    const at::Tensor number = is_kind.flatten().cumsum(0).sub_(1).clamp_(0, kind.count() - 1);
    advances =
        at::where(is_kind, tables.advances.index_select(0, number).view(tokens.sizes()), advances);
    offsets =
        at::where(is_kind, tables.offsets.index_select(1, number).view(offsets.sizes()), offsets);
  }
  if (has_padding) {
    advances = advances * mask.ne(0);
  }
  at::Tensor begins = advances.cumsum(1) - advances;
  if (mask.defined() && mask.dim() == 1) {
    const at::Tensor first = begins_of(nn::read_boundaries(mask, tokens.size(0), tokens.size(1)));
    begins = begins - begins.flatten()
                          .index_select(0, first.to(tokens.device(), /*non_blocking=*/true))
                          .view(begins.sizes());
  }
  const at::Tensor positions = begins + offsets;
  return has_padding ? positions.masked_fill(mask.eq(0), 1) : positions;
}

}  // namespace fsdp2::models
