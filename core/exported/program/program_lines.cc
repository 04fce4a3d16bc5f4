#include "core/exported/program/program_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

std::string text_of(const c10::IValue& constant) {
  std::ostringstream text;
  text << constant;  // texts in quotes, on one line
  return text.str();
}

std::string text_of(ValueId value) {
  return value == kNoValue ? "None" : fmt::format("%{}", value);
}

std::string text_of(const std::vector<ValueId>& values) {
  std::vector<std::string> texts;
  for (const ValueId value : values) {
    texts.push_back(text_of(value));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string text_of(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return text_of(argument.constant);
    case Argument::Kind::kValue:
      return text_of(argument.values.front());
    case Argument::Kind::kTensors:
    case Argument::Kind::kOptionalTensors:
      return text_of(argument.values);
    case Argument::Kind::kInts: {
      std::vector<std::string> texts;
      for (size_t i = 0; i < argument.ints.size(); ++i) {
        const ValueId value = argument.values[i];
        texts.push_back(value == kNoValue ? std::to_string(argument.ints[i]) : text_of(value));
      }
      return fmt::format("[{}]", fmt::join(texts, ", "));
    }
    case Argument::Kind::kDevice:
      return "the device";
  }
  return {};
}

std::string text_of(const Mode& mode) {
  std::string text;
  if (mode.grad) {
    text += *mode.grad ? ", with gradients" : ", without gradients";
  }
  if (mode.autocast) {
    text +=
        fmt::format(", autocast {}", !mode.autocast->enabled ? "off"
                                     : mode.autocast->dtype  ? c10::toString(*mode.autocast->dtype)
                                                             : "on");
  }
  return text;
}

std::string text_of(const Program& program, const Node& node) {
  std::vector<std::string> inputs;
  for (const NamedArgument& input : node.inputs) {
    inputs.push_back(fmt::format("{} {}", printable_name(input.name), text_of(input.argument)));
  }
  std::vector<std::string> outputs;
  for (const Output& output : node.outputs) {
    outputs.push_back(text_of(output.values));
  }
  std::string place;
  if (node.stack >= 0) {
    for (const OpenCall& call : program.stacks[static_cast<size_t>(node.stack)]) {
      place = fmt::format(" in {} \"{}\"", printable_name(call.kind), printable_name(call.path));
    }
  }
  return fmt::format("{}({}) -> {}{}{}", printable_name(node.target), fmt::join(inputs, ", "),
                     fmt::join(outputs, ", "), place,
                     text_of(program.modes[static_cast<size_t>(node.mode)]));
}

std::string text_of(const Program& program, const UserInput& input) {
  std::vector<std::string> sizes;
  for (const Size& size : input.sizes) {
    if (size.symbol < 0) {
      sizes.push_back(std::to_string(size.fixed));
      continue;
    }
    const Symbol& symbol = program.symbols[static_cast<size_t>(size.symbol)];
    const auto bound = [](const std::optional<int64_t>& value) {
      return value ? std::to_string(*value) : "any";
    };
    sizes.push_back(
        fmt::format("size {} from {} to {}", size.symbol, bound(symbol.least), bound(symbol.most)));
  }
  return fmt::format("{}: {} [{}]", text_of(input.value), c10::toString(input.dtype),
                     fmt::join(sizes, ", "));
}

}  // namespace

nn::ComputationLines lines_of(const Program& program) {
  nn::ComputationLines lines;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    lines.emplace_back(fmt::format("input {}", i), text_of(program, program.inputs[i]));
  }
  for (const auto& [what, list] : {std::pair("place of the parameter", &program.parameters),
                                   std::pair("place of the buffer", &program.buffers),
                                   std::pair("place of the constant", &program.constants)}) {
    for (const BoundTensor& tensor : *list) {
      lines.emplace_back(fmt::format("{} {}", what, printable_name(tensor.name)),
                         fmt::format("{}: {}", text_of(tensor.value), c10::toString(tensor.dtype)));
    }
  }
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    lines.emplace_back(fmt::format("node {}", i), text_of(program, program.nodes[i]));
  }
  lines.emplace_back("outputs", text_of(program.outputs));
  return lines;
}

}  // namespace fsdp2::exported
