#include "core/exported/script/script_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/passes/canonicalize.h>

#include <cctype>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/script_graph.h"

namespace fsdp2::exported {

namespace {

namespace attr = torch::jit::attr;

// Python numbers the classes of one name that it has seen: "___torch_mangle_3.".
std::string without_numbers(const std::string& text) {
  constexpr std::string_view kMangled = "___torch_mangle_";
  std::string kept;
  size_t begin = 0;
  for (size_t end = text.find(kMangled); end != std::string::npos;
       end = text.find(kMangled, begin)) {
    kept.append(text, begin, end - begin);
    begin = end + kMangled.size();
    while (begin < text.size() && std::isdigit(static_cast<unsigned char>(text[begin])) != 0) {
      ++begin;
    }
    begin += begin < text.size() && text[begin] == '.' ? 1 : 0;
  }
  kept.append(text, begin);
  return kept;
}

// Canonicalize names the values of the outermost block anew, and keeps those of blocks inside,
// which are also printed with their source locations whatever is asked for. The process counts the
// warnings that it has read.
void forget_names(torch::jit::Graph& graph) {
  for_each_node(*graph.block(), [](torch::jit::Node& node) {
    node.setSourceRange(torch::jit::SourceRange());
    if (node.hasAttribute(attr::warn_id)) {
      node.removeAttribute(attr::warn_id);
    }
    for (torch::jit::Value* output : node.outputs()) {
      output->setDebugName("");
    }
    for (torch::jit::Block* block : node.blocks()) {
      for (torch::jit::Value* input : block->inputs()) {
        input->setDebugName("");
      }
    }
  });
}

std::string text_of(const c10::IValue& value);

// Without the parameters of a module.
std::string text_of_object(const c10::ivalue::Object& object) {
  const c10::ClassType& type = *object.type();
  std::vector<std::string> texts;
  for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
    if (!type.is_module() || !type.is_parameter(slot)) {
      texts.push_back(type.getAttributeName(slot) + " " + text_of(object.getSlot(slot)));
    }
  }
  return fmt::format("{} ({})", without_numbers(type.str()), fmt::join(texts, ", "));
}

template <typename Values>
std::string text_of_all(const Values& values) {
  std::vector<std::string> texts;
  for (const c10::IValue& value : values) {
    texts.push_back(text_of(value));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string text_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? nn::line_of(value.toTensor()) : "nothing";
  }
  if (value.isList()) {
    return text_of_all(value.toListRef());
  }
  if (value.isTuple()) {
    return text_of_all(value.toTupleRef().elements());
  }
  if (value.isGenericDict()) {
    std::vector<std::string> texts;
    for (const auto& item : value.toGenericDict()) {
      texts.push_back(text_of(item.key()) + ": " + text_of(item.value()));
    }
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }
  if (value.isObject()) {
    return text_of_object(value.toObjectRef());
  }
  std::ostringstream text;
  text << value;  // texts in quotes, on one line
  return text.str();
}

}  // namespace

nn::ComputationLines lines_of(const std::shared_ptr<torch::jit::Graph>& code) {
  const std::shared_ptr<torch::jit::Graph> graph =
      torch::jit::Canonicalize(code, /*keep_unique_names=*/false);
  forget_names(*graph);
  nn::ComputationLines lines;
  std::istringstream text(without_numbers(graph->toString(/*print_source_locations=*/false)));
  for (std::string line; std::getline(text, line);) {
    lines.emplace_back(fmt::format("code line {}", lines.size()), line);
  }
  size_t tensors = 0;
  for_each_node(*graph->block(), [&](const torch::jit::Node& node) {
    if (node.kind() == torch::jit::prim::Constant && node.hasAttribute(attr::value) &&
        node.kindOf(attr::value) == torch::jit::AttributeKind::t) {
      lines.emplace_back(fmt::format("constant {}", tensors++), nn::line_of(node.t(attr::value)));
    }
  });
  return lines;
}

nn::ComputationLines lines_of(const ScriptObject& object) {
  const c10::ClassType& type = *object->type();
  nn::ComputationLines lines;
  for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
    const c10::IValue& value = object->getSlot(slot);
    const std::string& name = type.getAttributeName(slot);
    const bool is_module = value.isObject() && value.toObjectRef().type()->is_module();
    if (!is_module && !type.is_parameter(slot) && name != kTrainingMode) {
      lines.emplace_back("attribute " + ckpt::printable_name(name), text_of(value));
    }
  }
  return lines;
}

}  // namespace fsdp2::exported
