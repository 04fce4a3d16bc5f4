// Initial values from a seed. A value depends on the seed, the parameter's name and the element's
// index and on nothing else, so a model starts the same at any world size and any sharding, and a
// rank draws only the rows that it holds (in blocks of 4,096 elements).
//
//   name ends in "norm.weight"/"layernorm.weight", or 1-D ".weight"   1, or `norm_weight`
//   name ends in "bias"                                               0
//   everything else                                normal, mean 0, standard deviation `std`, or
//                                                  `residual_std` where it ends in "c_proj.weight"
//   row `padding_token` of "embed_tokens.weight"                     0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/nn/parameter_source.h"

namespace fsdp2::nn {

// Writes normal numbers of mean 0, with the bounds of ParameterSource::read.
void read_normal(uint64_t seed, const std::string& name, double std, at::IntArrayRef shape,
                 int64_t first_row, at::Tensor out);

// The same of numbers that are uniform in [-bound, bound).
void read_uniform(uint64_t seed, const std::string& name, double bound, at::IntArrayRef shape,
                  int64_t first_row, at::Tensor out);

class SeededInit : public ParameterSource {
 public:
  // std: `initializer_range` of config.json. padding_token: -1 for none.
  explicit SeededInit(uint64_t seed, double std = 0.02, double norm_weight = 1,
                      std::optional<double> residual_std = std::nullopt, int64_t padding_token = -1)
      : seed_(seed),
        std_(std),
        norm_weight_(norm_weight),
        residual_std_(residual_std.value_or(std)),
        padding_token_(padding_token) {}

  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;
  std::string mark_of(const std::string& name) const override;

 private:
  uint64_t seed_;
  double std_;
  double norm_weight_;
  double residual_std_;
  int64_t padding_token_;
};

}  // namespace fsdp2::nn
