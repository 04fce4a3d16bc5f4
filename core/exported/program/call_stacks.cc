#include "core/exported/program/call_stacks.h"

#include <algorithm>
#include <string_view>

#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

constexpr size_t kMaxOpenCalls = 64;
// What nodes have that torch.export itself adds, such as assertions.
constexpr std::string_view kNoModule = "_empty_nn_module_stack";

}  // namespace

int32_t CallStacks::number_of(const json& node) {
  const json* metadata = document_.find(node, "metadata");
  const json* value = metadata == nullptr ? nullptr : document_.find(*metadata, "nn_module_stack");
  if (value == nullptr) {
    return -1;
  }
  const std::string& text = document_.text(*value);
  if (text.empty() || starts_with(text, kNoModule)) {
    return -1;
  }
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) {
    return found->second;
  }
  const auto number = static_cast<int32_t>(stacks_.size());
  stacks_.push_back(parse(*value, text));
  numbers_.emplace(text, number);
  return number;
}

// key,path,type;key,path,type...
CallStack CallStacks::parse(const json& where, const std::string& text) const {
  CallStack stack;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = entry.find(',');
    const size_t last = entry.rfind(',');
    if (first == std::string::npos || first == last) {
      document_.refuse(Code::kCorruptData, where, "expected key,path,type, found {}",
                       ckpt::printable_name(entry));
    }
    const std::string type = entry.substr(last + 1);
    OpenCall call = {entry.substr(0, first), entry.substr(first + 1, last - first - 1),
                     type.substr(type.rfind('.') + 1)};
    if (paths_.count(call.path) == 0) {
      document_.refuse(Code::kCorruptData, where, "there is no module \"{}\"",
                       ckpt::printable_name(call.path));
    }
    const bool is_open = std::any_of(
        stack.begin(), stack.end(), [&](const OpenCall& outer) { return outer.path == call.path; });
    if (is_open || stack.size() >= kMaxOpenCalls) {
      document_.refuse(Code::kCorruptData, where, "the module \"{}\" is called {}",
                       ckpt::printable_name(call.path), is_open ? "inside itself" : "too deep");
    }
    stack.push_back(std::move(call));
  }
  if (!stack.front().path.empty()) {
    document_.refuse(Code::kCorruptData, where, "expected the root first, found \"{}\"",
                     ckpt::printable_name(stack.front().path));
  }
  return stack;
}

}  // namespace fsdp2::exported
