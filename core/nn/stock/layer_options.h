// The options of a stock layer: a JSON object with PyTorch's argument names. A value that is null
// counts as left out. Every error is kInvalidArgument and names the layer, the option, what was
// expected and what was found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::nn {

class LayerOptions {
 public:
  // `known`: the options that the layer has; the nearest of them is named where one is unknown. An
  // empty text stands for no options.
  LayerOptions(std::string kind, std::vector<std::string> known, const std::string& text);

  const std::string& kind() const { return kind_; }

  // All below are about options that the layer has. With a default an option may be left out,
  // without one it must be there.
  bool has(const char* name) const { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t least, int64_t most,
                  std::optional<int64_t> value = {}) const;
  // An integer from 1 to 2^40.
  int64_t size(const char* name, std::optional<int64_t> value = {}) const;
  // One integer for all of `count` dims, or an array with one of each.
  std::vector<int64_t> integers(const char* name, size_t count, int64_t least,
                                std::optional<int64_t> value = {}) const;
  // One size or an array of 1 to 16.
  std::vector<int64_t> shape(const char* name) const;
  // Finite, from `least` to `most`, which the message gives as `expected`.
  double number(const char* name, double least, double most, const char* expected,
                std::optional<double> value = {}) const;
  bool flag(const char* name, bool value) const;
  // One of `choices`.
  std::string choice(const char* name, const std::vector<std::string>& choices,
                     const std::string& value) const;

 private:
  const nlohmann::json* find(const char* name) const;
  // Null if the option is left out and has a default.
  const nlohmann::json* get(const char* name, bool has_default, const std::string& expected) const;
  [[noreturn]] void refuse(const char* name, const std::string& expected,
                           const nlohmann::json& found) const;

  const std::string kind_;
  const std::vector<std::string> known_;
  nlohmann::json json_;
};

}  // namespace fsdp2::nn
