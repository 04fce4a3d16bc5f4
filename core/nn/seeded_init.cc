#include "core/nn/seeded_init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/nn/kernels/simd_rows.h"

namespace fsdp2::nn {

namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kBlocksOfAThread = 16;  // at least: a few hundred us
constexpr float kUnit = 1.0F / (1 << 24);

// FNV-1a over the name, then the finaliser of SplitMix64 with the seed: 64 well mixed bits.
uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  uint64_t mixed = hash + 0x9e3779b97f4a7c15ULL * (seed + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return mixed ^ (mixed >> 31);
}

// Block number `block` of the uniform numbers of `key`, in [0, 1).
void fill_unit_block(uint64_t key, int64_t block, const at::Tensor& out) {
  uint32_t bits[kBlock];
  simd::philox(key, static_cast<uint64_t>(block), bits, kBlock / 4);
  auto* values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(static_cast<int32_t>(bits[i] >> 8)) * kUnit;
  }
}

// The same of the normal numbers, by Box and Muller: element i of the first half and element i of
// the second half share a radius.
void fill_normal_block(uint64_t key, int64_t block, double std, const at::Tensor& out) {
  fill_unit_block(key, block, out);
  auto radius = out.narrow(0, 0, kBlock / 2);
  auto angle = out.narrow(0, kBlock / 2, kBlock / 2);
  radius.add_(kUnit);  // in (0, 1]: log is finite
  radius.log_().mul_(-2).sqrt_().mul_(std);
  angle.mul_(6.283185307179586);
  const at::Tensor sine = angle.sin().mul_(radius);
  radius.mul_(angle.cos_());
  angle.copy_(sine);
}

// The elements of a row.
int64_t check_rows(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                   const at::Tensor& out) {
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t row_numel = c10::multiply_integers(shape.empty() ? shape : shape.slice(1));
  const int64_t count = out.numel();
  FSDP2_CHECK(
      first_row >= 0 && first_row <= rows && out.is_contiguous() &&
          count <= (rows - first_row) * row_numel && (row_numel == 0 || count % row_numel == 0),
      Code::kInvalidArgument,
      "{}: expected a contiguous output of whole rows from row {} of {} rows of {} elements, "
      "got {} elements",
      name, first_row, rows, row_numel, count);
  return row_numel;
}

// Writes the numbers that `fill` makes of each block: (key, block, out [kBlock] fp32).
template <typename Fill>
void read_blocks(uint64_t seed, const std::string& name, at::IntArrayRef shape, int64_t first_row,
                 const at::Tensor& out, const Fill& fill) {
  const int64_t row_numel = check_rows(name, shape, first_row, out);
  if (out.numel() == 0) {
    return;
  }
  const uint64_t key = key_of(seed, name);
  const int64_t begin = first_row * row_numel;
  const int64_t end = begin + out.numel();
  const auto make = [&](int64_t first_block, int64_t end_block) {
    const c10::AutoGradMode no_grad(false);  // of this thread
    const at::Tensor flat = out.view({-1});
    // Made on the host whatever out's device is: a seed gives the same values everywhere.
    const at::Tensor made = at::empty({kBlock}, at::device(at::kCPU).dtype(at::kFloat));
    for (int64_t block = first_block; block < end_block; ++block) {
      const int64_t first = std::max(begin, block * kBlock);
      const int64_t piece = std::min(end, (block + 1) * kBlock) - first;
      fill(key, block, made);
      flat.narrow(0, first - begin, piece).copy_(made.narrow(0, first - block * kBlock, piece));
    }
  };
  const int64_t end_block = (end + kBlock - 1) / kBlock;
  if (out.is_cpu()) {
    at::parallel_for(begin / kBlock, end_block, kBlocksOfAThread, make);
  } else {
    make(begin / kBlock, end_block);
  }
}

}  // namespace

void read_normal(uint64_t seed, const std::string& name, double std, at::IntArrayRef shape,
                 int64_t first_row, at::Tensor out) {
  read_blocks(seed, name, shape, first_row, out,
              [std](uint64_t key, int64_t block, const at::Tensor& made) {
                fill_normal_block(key, block, std, made);
              });
}

void read_uniform(uint64_t seed, const std::string& name, double bound, at::IntArrayRef shape,
                  int64_t first_row, at::Tensor out) {
  read_blocks(seed, name, shape, first_row, out,
              [bound](uint64_t key, int64_t block, const at::Tensor& made) {
                fill_unit_block(key, block, made);
                made.mul_(2 * bound).sub_(bound);
              });
}

void SeededInit::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                      at::Tensor out) {
  check_rows(name, shape, first_row, out);
  const c10::AutoGradMode no_grad(false);
  if (ends_with(name, "norm.weight") || (shape.size() == 1 && ends_with(name, ".weight"))) {
    out.fill_(norm_weight_);
  } else if (ends_with(name, "bias")) {
    out.zero_();
  } else {
    const bool is_residual = ends_with(name, "c_proj.weight");
    read_normal(seed_, name, is_residual ? residual_std_ : std_, shape, first_row, out);
  }
  if (ends_with(name, "embed_tokens.weight") && padding_token_ >= first_row &&
      padding_token_ < first_row + out.size(0)) {
    out[padding_token_ - first_row].zero_();
  }
}

std::string SeededInit::mark_of(const std::string& /*name*/) const {
  return fmt::format("seed {}, standard deviations {} and {}, norms from {}, padding token {}",
                     seed_, std_, residual_std_, norm_weight_, padding_token_);
}

}  // namespace fsdp2::nn
