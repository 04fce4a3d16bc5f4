#include "core/models/config/activation_config.h"

#include <fmt/ranges.h>

#include <optional>
#include <string>

#include "core/base/error.h"

namespace fsdp2::models {

nn::Activation read_activation(const ConfigReader& config, const char* key, const char* usual) {
  const std::string name = config.text(key, usual);
  const std::optional<nn::Activation> found = nn::find_activation(name);
  FSDP2_CHECK(found, Code::kUnsupported,
              "config.json: \"{}\" \"{}\" is not supported; supported: {}", key, name,
              fmt::join(nn::activation_names(), ", "));
  return *found;
}

}  // namespace fsdp2::models
