// Models that have a name and need no file: GPT-2 with 90 and 300 million parameters, tied, of
// 1,024 positions, without dropout, which bench/python/make_model.py has by the same names; and an
// encoder with 45 million, tied, of 512 positions, with a dropout of 0.1.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::config {

std::vector<std::string> model_presets();
bool is_model_preset(const std::string& name);

// The text of its config.json. REQUIRES: is_model_preset(name).
std::string config_of_preset(const std::string& name);

}  // namespace fsdp2::config
