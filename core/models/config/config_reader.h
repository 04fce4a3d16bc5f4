// Typed access to config.json. Every error is kInvalidArgument and names the key, what was expected
// and what was found. A key whose value is null counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdp2::models {

// The keys that readers on this thread look up while it lives: what a model knows of its
// config.json.
class ReadKeys {
 public:
  ReadKeys();
  ~ReadKeys();
  ReadKeys(const ReadKeys&) = delete;
  ReadKeys& operator=(const ReadKeys&) = delete;

  // "rope_scaling.factor"
  bool has(const std::string& path) const { return paths_.count(path) > 0; }
  std::vector<std::string> paths() const { return {paths_.begin(), paths_.end()}; }

 private:
  friend class ConfigReader;
  std::set<std::string> paths_;
  ReadKeys* const outer_;
};

class ConfigReader {
 public:
  // Parses the text: kInvalidArgument if it is not a JSON object.
  explicit ConfigReader(const std::string& text);

  bool has(const std::string& key) const { return find(key) != nullptr; }
  // Where transformers has a default, a key with the value null says that there is to be none.
  bool is_null(const std::string& key) const;

  // With a default the key may be absent, without one it must be there.
  // A size is an integer from 1 to max.
  int64_t size(const std::string& key, int64_t max, std::optional<int64_t> value = {}) const;
  int64_t integer(const std::string& key, int64_t min, int64_t max,
                  std::optional<int64_t> value = {}) const;
  // Finite.
  double number(const std::string& key, std::optional<double> value = {}) const;
  double positive(const std::string& key, std::optional<double> value = {}) const;
  double not_negative(const std::string& key, std::optional<double> value = {}) const;
  // From 0 to below 1.
  double probability(const std::string& key, std::optional<double> value = {}) const;
  // With a default null is false, which it is to transformers, whatever the default.
  bool boolean(const std::string& key, std::optional<bool> value = {}) const;
  // One line, at most 200 bytes.
  std::string text(const std::string& key, std::optional<std::string> value = {}) const;
  std::vector<std::string> texts(const std::string& key) const;  // empty if absent
  // Integers from 0 to max; empty if absent.
  std::vector<int64_t> integers(const std::string& key, int64_t max) const;
  std::vector<double> numbers(const std::string& key) const;  // finite; empty if absent
  ConfigReader object(const std::string& key) const;

  // "rope_scaling.factor": the key as messages name it.
  std::string path_of(const std::string& key) const { return prefix_ + key; }

 private:
  ConfigReader(nlohmann::json json, std::string prefix)
      : json_(std::move(json)), prefix_(std::move(prefix)) {}

  void note(const std::string& key) const;  // for ReadKeys
  const nlohmann::json* find(const std::string& key) const;
  // Null if absent and `optional`; throws if absent otherwise.
  const nlohmann::json* get(const std::string& key, bool optional, const char* expected) const;

  nlohmann::json json_;
  std::string prefix_;  // of the keys in messages
};

}  // namespace fsdp2::models
