#include "cli/doctor/full_weights.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp2::cli {

namespace {

using Weights = std::map<std::string, std::vector<float>>;

// The library wrote it a moment ago, and has checks of its own for files from elsewhere.
Weights read_weights(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string bytes = stream.str();
  uint64_t header = 0;
  const auto must = [&](bool condition) {
    if (!condition) {
      throw std::runtime_error(path + ": is not a whole file of safetensors in fp32");
    }
  };
  must(bytes.size() > sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  must(header < bytes.size() - sizeof(header));
  const size_t begin = sizeof(header) + static_cast<size_t>(header);
  const auto entries = nlohmann::json::parse(
      bytes.substr(sizeof(header), static_cast<size_t>(header)), nullptr, false);
  must(entries.is_object());
  Weights weights;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") {
      continue;
    }
    must(entry.at("dtype") == "F32");
    const size_t from = entry.at("data_offsets").at(0), to = entry.at("data_offsets").at(1);
    must(from <= to && to <= bytes.size() - begin && (to - from) % sizeof(float) == 0);
    std::vector<float>& values = weights[name];
    values.resize((to - from) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + begin + from, to - from);
  }
  must(!weights.empty());
  return weights;
}

}  // namespace

WeightDifference compare_weights(const std::string& one, const std::string& other) {
  const Weights a = read_weights(one), b = read_weights(other);
  WeightDifference difference;
  double squares = 0;
  for (const auto& [name, values] : a) {
    const auto found = b.find(name);
    if (a.size() != b.size() || found == b.end() || found->second.size() != values.size()) {
      throw std::runtime_error(one + " and " + other + " do not have the same tensors");
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double here = std::abs(static_cast<double>(values[i]) - found->second[i]);
      squares += here * here;
      if (!(here <= difference.largest)) {  // also where it is NaN
        difference.largest = here;
        difference.where = name;
      }
    }
  }
  difference.distance = std::sqrt(squares);
  return difference;
}

}  // namespace fsdp2::cli
