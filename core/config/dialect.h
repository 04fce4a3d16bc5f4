// A dialect of configuration files: a table of its keys, which says for each what it sets, or why
// it is ignored, or that what it asks for is not provided.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/plan.h"

namespace fsdp2::config {

struct Row {
  enum class Fate { kSets, kIgnored, kNotProvided };
  using Read = std::function<void(const Value&, Plan*)>;

  // "training_args.learning_rate"; "model.*": all of model that no row names. "data" beside
  // "data.*": what stands there instead of a mapping.
  std::string path;
  Fate fate;
  std::string text;                   // what it sets ("lr"); else why it does nothing here
  Read read;                          // of kSets
  std::vector<std::string> harmless;  // of kNotProvided: the values that ask for nothing
};

// A key that is one of ours under another name.
Row sets(const std::string& path, const std::string& key);
// A key that `read` turns into others of ours, which `text` names.
Row reads(const std::string& path, const std::string& text, Row::Read read);
Row ignored(const std::string& path, const std::string& why);
// Any value but null, an empty list or map, and the `harmless` ones is an error.
Row not_provided(const std::string& path, std::vector<std::string> harmless,
                 const std::string& why);

// Applies the rows to the keys of `map`, whose paths begin with `prefix` in messages. A key that no
// row names is an error, which names the nearest. Null is as if the key were not there. Keys that
// are ignored get one note together.
void apply(const std::vector<Row>& rows, const Node& map, const std::string& prefix, Plan* plan);

}  // namespace fsdp2::config
