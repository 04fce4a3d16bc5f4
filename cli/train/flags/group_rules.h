// The flags by which parameters get a weight decay or a learning rate of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::cli {

// "norm,bias" as FSDP2_NO_DECAY_NORMS and _BIASES. Throws UsageError.
uint32_t read_no_decay(const std::string& text);

struct LrScale {
  std::string pattern;
  double factor = 1.0;
};
// "lm_head.*=0.1,*.bias=2". Throws UsageError.
std::vector<LrScale> read_lr_scales(const std::string& text);

}  // namespace fsdp2::cli
