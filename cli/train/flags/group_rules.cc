#include "cli/train/flags/group_rules.h"

#include <cmath>
#include <cstdlib>

#include "cli/arguments.h"
#include "fsdp2/fsdp2.h"

namespace fsdp2::cli {

uint32_t read_no_decay(const std::string& text) {
  uint32_t flags = 0;
  for (const std::string& kind : parts_of(text)) {
    require(kind == "norm" || kind == "bias",
            "--no-decay " + text + ": expected norm, bias, or norm,bias");
    flags |= kind == "norm" ? FSDP2_NO_DECAY_NORMS : FSDP2_NO_DECAY_BIASES;
  }
  return flags;
}

std::vector<LrScale> read_lr_scales(const std::string& text) {
  std::vector<LrScale> scales;
  for (const std::string& part : parts_of(text)) {
    const size_t equals = part.rfind('=');
    const bool is_whole = equals != std::string::npos && equals > 0 && equals + 1 < part.size();
    const std::string number = is_whole ? part.substr(equals + 1) : "";
    char* end = nullptr;
    const double factor = std::strtod(number.c_str(), &end);
    require(is_whole && *end == '\0' && std::isfinite(factor) && factor >= 0.0,
            "--lr-scale " + part + ": expected PATTERN=FACTOR, where the factor is at least 0");
    scales.push_back({part.substr(0, equals), factor});
  }
  return scales;
}

}  // namespace fsdp2::cli
