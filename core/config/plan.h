// The configuration of a run, with where each value comes from.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/config/key_table.h"
#include "core/config/value.h"

namespace fsdp2::config {

// What a configuration is read for.
enum class Purpose {
  kTrain,
  kInfer,  // forwards alone: of ROLL's roles, one with the strategy fsdp2_infer, or one that trains
};

struct Plan {
  Purpose purpose = Purpose::kTrain;
  TrainOptions options;
  // By key: "run.yaml:12 training_args.learning_rate", or "override: --lr". A key that is not here
  // has its default.
  std::map<std::string, std::string> origins;
  // Lines for people: what was changed by rule, and what is ignored.
  std::vector<std::string> notes;

  // Reads the value of one of our keys, by its name.
  void read(const std::string& key, const Value& value);
  // REQUIRES: the type is the key's.
  template <typename T>
  void set(const std::string& key, T value, const std::string& origin) {
    *std::get<T*>(field(key).value) = std::move(value);
    origins[key] = origin;
  }
  void set(const std::string& key, const char* value, const std::string& origin) {
    set(key, std::string(value), origin);
  }

  // Adds a line to `notes`.
  void note(const std::string& text);

  // Where the value of `key` comes from: "default" if nobody gave it.
  std::string origin_of(const std::string& key) const;

  // All keys with their values and origins, as a file that fsdp2 train reads. What is still open, a
  // loss scale that param_dtype auto may ask for, is written as ~.
  std::string text() const;
  // What must be equal on all ranks, with origins as notes (key_table.h).
  std::string shared_text() const;

 private:
  Key field(const std::string& key);
};

// "run.yaml:12 training_args.learning_rate"
std::string origin_text(const Value& value);

}  // namespace fsdp2::config
