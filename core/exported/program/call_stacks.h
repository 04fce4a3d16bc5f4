// nn_module_stack of a node's metadata: the calls that are open while it runs.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/exported/program/json_document.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

// Reads each text once: most nodes share theirs with others.
class CallStacks {
 public:
  // paths: those of all modules.
  CallStacks(const JsonDocument& document, std::unordered_set<std::string> paths,
             std::vector<CallStack>& stacks)
      : document_(document), paths_(std::move(paths)), stacks_(stacks) {}

  // The number of the stack; -1 for a node that is in no module. Errors: kCorruptData for a text of
  // another form, a module that is not there, modules nested too deeply or in themselves.
  int32_t number_of(const json& node);

 private:
  CallStack parse(const json& where, const std::string& text) const;

  const JsonDocument& document_;
  const std::unordered_set<std::string> paths_;
  std::vector<CallStack>& stacks_;
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace fsdp2::exported
