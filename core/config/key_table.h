// The keys of a training run, each once: what flags are called (--global-batch), what a YAML file
// calls them (global_batch or global-batch), their types, and what is said about them. Those that
// bench/python/train_options.py also has share its names, meanings and defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "core/config/train_options.h"

namespace fsdp2::config {

// What a text stands for.
enum class Form {
  kText,   // itself
  kWord,   // a word, which may look like a boolean or a number: default, true, 4
  kList,   // names with commas between them
  kDtype,  // a dtype, by one of its names
  kObject  // a JSON object, which YAML may also have as a mapping
};

struct Key {
  std::string group;
  std::string name;  // global-batch
  std::variant<std::string*, int64_t*, uint64_t*, double*, bool*> value;
  std::string help;  // begins with a noun or a verb
  std::vector<std::string> choices = {};
  Form form = Form::kText;
  bool same_on_all_ranks = true;
  bool is_path = false;  // names a file or a directory, or several: no flag may leave it empty

  std::string flag() const { return "--" + name; }
  std::string value_text() const;
};

// The keys bound to the fields of `options`.
std::vector<Key> train_keys(TrainOptions* options);

// The keys whose values must be equal on all ranks, as lines "--global-batch=8" for
// fsdp2_mesh_agree. note_of: what is told of a key, by its name, where ranks differ in it.
std::string shared_text(const TrainOptions& options,
                        const std::function<std::string(const std::string&)>& note_of = nullptr);

}  // namespace fsdp2::config
