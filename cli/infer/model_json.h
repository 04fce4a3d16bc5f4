// JSON files in the directory of a model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fsdp2::cli {

// nullopt if there is no such file. Throws Failure for one that cannot be read or is no object.
std::optional<nlohmann::json> read_model_json(const std::string& path);

}  // namespace fsdp2::cli
