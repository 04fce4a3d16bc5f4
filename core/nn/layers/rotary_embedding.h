// Rotary position embedding, with the numerics of the transformers library.
//
// Shapes: B batch, S sequence, H heads, E dim of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp2::nn {

// Rope type "linear": all wavelengths are stretched.
struct LinearScaling {
  double factor = 1;
};

// Rope type "dynamic": the base of the frequencies grows with the longest sequence of a batch,
// where that is longer than the trained context.
struct DynamicScaling {
  double factor = 1;
  int64_t original_max_positions = 0;
};

// Rope type "llama3": wavelengths beyond the trained context are stretched by `factor`, those well
// within it are kept, with a smooth passage between.
struct Llama3Scaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_max_positions = 8192;
};

// Rope type "yarn": frequencies that turn fewer than `beta_slow` times within the trained context
// are divided by `factor`, those that turn more than `beta_fast` times are kept, with a linear
// passage between; cos and sin are multiplied by `attention_factor`.
struct YarnScaling {
  double factor = 1;
  double attention_factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_positions = 0;
  bool truncate = true;  // the passage begins and ends at whole frequencies
};

// Rope type "longrope": each wavelength has a factor of its own, and another one where the longest
// sequence of a batch is longer than the trained context; cos and sin are multiplied by
// `attention_factor`.
struct LongRopeScaling {
  std::vector<double> short_factors;  // E/2
  std::vector<double> long_factors;   // E/2
  double attention_factor = 1;
  int64_t original_max_positions = 0;
};

// monostate: the rope type "default".
using RotaryScaling = std::variant<std::monostate, LinearScaling, DynamicScaling, Llama3Scaling,
                                   YarnScaling, LongRopeScaling>;

struct RotaryOptions {
  double theta = 10000;
  RotaryScaling scaling;
  // For positions of three axes (time, height, width), `mrope_section` of config.json: so many
  // frequencies in turn follow the first axis, the second, the third, the first again, ... Their
  // sum is E/2. Empty: positions have one axis.
  std::vector<int64_t> sections;
  // The sections, of which there are three then, take turns instead, frequency by frequency, until
  // height's or width's are used up; the rest follow time.
  bool interleaves_sections = false;
};

// The angles of each position. No parameters, and no module: nothing of it is saved or sharded.
class RotaryEmbedding {
 public:
  using Angles = std::pair<at::Tensor, at::Tensor>;  // cos and sin

  RotaryEmbedding(int64_t head_dim, RotaryOptions options);
  RotaryEmbedding(int64_t head_dim, double theta, RotaryScaling scaling = {});

  // cos and sin [S, E/2] of positions 0 .. S-1, computed in fp32 and cast to like's dtype, on its
  // device.
  Angles cos_sin(int64_t length, const at::Tensor& like);
  // Those of positions [B,S], or [3,B,S] with sections, integers on any device: [B,S,E/2]. Error:
  // kInvalidArgument for others.
  Angles cos_sin(const at::Tensor& positions, const at::Tensor& like);

 private:
  Angles cos_sin_of(const at::Tensor& angle, const at::Tensor& like) const;
  // For sequences of this length (a number, fp64), on its device.
  at::Tensor inverse_frequency(const at::Tensor& length);

  RotaryScaling scaling_;
  double theta_;
  at::Tensor exponent_;                // [E/2] fp32, 2i/E, on the device that asked last, as these:
  at::Tensor inverse_frequency_;       // [E/2] fp32, within the trained context
  at::Tensor long_inverse_frequency_;  // beyond it; undefined unless the type is longrope
  double attention_factor_ = 1;        // of cos and sin
  std::vector<int64_t> sections_;
  bool interleaves_sections_ = false;
};

// Rotates the halves of each head of x [B,S,H,E] by the angles of cos and sin: [S, E/2], the same
// for each of the batch, or [B, S, E/2]. With fewer angles, R/2, only the first R of a head rotate,
// and the rest stays as it is.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace fsdp2::nn
