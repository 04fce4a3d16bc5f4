// Models that have a name and need no file: GPT-2 with 90 and 300 million parameters, tied, of
// 1,024 positions, without dropout. bench/python/make_model.py has the same by the same names.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::config {

std::vector<std::string> model_presets();
bool is_model_preset(const std::string& name);

// The text of its config.json. REQUIRES: is_model_preset(name).
std::string config_of_preset(const std::string& name);

}  // namespace fsdp2::config
