#include "core/exported/program/signature_reader.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/program/serialized_types.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr size_t kMaxInputDims = 64;

class InputsReader {
 public:
  InputsReader(const JsonDocument& document, const json& graph, ValueScope& scope, Program& program)
      : document_(document),
        graph_inputs_(document.array(document.member(graph, "inputs"))),
        shapes_(document.member(graph, "tensor_values")),
        scope_(scope),
        program_(program) {}

  void read(const json& specs) {
    const auto& list = document_.array(specs);
    if (list.size() != graph_inputs_.size()) {
      document_.refuse(Code::kCorruptData, specs,
                       "expected as many as inputs of the graph, {}, "
                       "found {}",
                       graph_inputs_.size(), list.size());
    }
    for (size_t i = 0; i < list.size(); ++i) {
      read_one(list[i], graph_inputs_[i]);
    }
  }

 private:
  void read_one(const json& spec, const json& graph_input) {
    const auto [kind, value] = document_.choice(spec);
    if (kind == "parameter") {
      program_.parameters.push_back(bound(value, "parameter_name", graph_input));
    } else if (kind == "buffer") {
      program_.buffers.push_back(bound(value, "buffer_name", graph_input));
      program_.buffers.back().is_persistent = document_.flag(document_.member(value, "persistent"));
    } else if (kind == "tensor_constant") {
      program_.constants.push_back(bound(value, "tensor_constant_name", graph_input));
      program_.constants.back().is_persistent = false;
    } else if (kind == "user_input") {
      read_user_input(document_.member(value, "arg"), graph_input);
    } else if (kind != "constant_input") {  // a number or None that the export fixed
      document_.refuse(Code::kUnsupported, spec, "an input {} is not supported",
                       printable_name(kind));
    }
  }

  // Defines the value that the signature and the graph's list of inputs both name.
  ValueId define(const json& name, const json& graph_input) {
    const json& listed = document_.member(document_.member(graph_input, "as_tensor"), "name");
    if (document_.text(listed) != document_.text(name)) {
      document_.refuse(Code::kCorruptData, name, "expected {}, found {}",
                       printable_name(document_.text(listed)),
                       printable_name(document_.text(name)));
    }
    return scope_.define(name, ValueKind::kTensor);
  }

  BoundTensor bound(const json& value, const char* name_key, const json& graph_input) {
    BoundTensor tensor;
    tensor.value = define(document_.member(document_.member(value, "arg"), "name"), graph_input);
    tensor.name = document_.text(document_.member(value, name_key));
    tensor.dtype = dtype_of(program_.values[static_cast<size_t>(tensor.value)].name);
    return tensor;
  }

  void read_user_input(const json& argument, const json& graph_input) {
    const auto [form, value] = document_.choice(argument);
    if (form != "as_tensor") {
      document_.refuse(Code::kUnsupported, argument,
                       "inputs are tensors, found {}: export with a constant in its place",
                       printable_name(form));
    }
    const json& name = document_.member(value, "name");
    UserInput input;
    input.value = define(name, graph_input);
    input.name = document_.text(name);
    input.dtype = dtype_of(input.name);
    const json& sizes = document_.member(document_.member(shapes_, input.name.c_str()), "sizes");
    if (document_.array(sizes).size() > kMaxInputDims) {
      document_.refuse(Code::kCorruptData, sizes, "more than {} dims", kMaxInputDims);
    }
    for (const json& size : document_.array(sizes)) {
      input.sizes.push_back(read_size(size));
    }
    program_.inputs.push_back(std::move(input));
  }

  at::ScalarType dtype_of(const std::string& value) const {
    return read_dtype(document_,
                      document_.member(document_.member(shapes_, value.c_str()), "dtype"));
  }

  Size read_size(const json& size) {
    const auto [form, value] = document_.choice(size);
    if (form == "as_int") {
      return {document_.integer(value), -1};
    }
    const json& expression = document_.member(document_.member(size, "as_expr"), "expr_str");
    return {0, symbol_of(expression)};
  }

  // Symbol('s72', positive=True, integer=True)
  int32_t symbol_of(const json& expression) {
    constexpr std::string_view kBegin = "Symbol('";
    const std::string& text = document_.text(expression);
    const size_t end = text.find('\'', kBegin.size());
    const bool is_symbol = starts_with(text, kBegin) && end != std::string::npos &&
                           text.find_first_of("()", end) == text.size() - 1;
    if (!is_symbol) {
      document_.refuse(Code::kUnsupported, expression,
                       "sizes of inputs are numbers or symbols of their own, found {}: export with "
                       "a Dim of its own for it",
                       printable_name(text));
    }
    const std::string name = text.substr(kBegin.size(), end - kBegin.size());
    const auto found = std::find_if(program_.symbols.begin(), program_.symbols.end(),
                                    [&](const Symbol& symbol) { return symbol.name == name; });
    const auto number = static_cast<int32_t>(found - program_.symbols.begin());
    if (found == program_.symbols.end()) {
      program_.symbols.push_back({name, {}, {}});
    }
    return number;
  }

  const JsonDocument& document_;
  const json::array_t& graph_inputs_;
  const json& shapes_;
  ValueScope& scope_;
  Program& program_;
};

std::optional<int64_t> read_bound(const JsonDocument& document, const json& range,
                                  const char* key) {
  const json* bound = document.find(range, key);
  return bound == nullptr ? std::nullopt : std::optional(document.integer(*bound));
}

}  // namespace

void read_inputs(const JsonDocument& document, const json& signature, const json& graph,
                 ValueScope& scope, Program& program) {
  InputsReader(document, graph, scope, program).read(document.member(signature, "input_specs"));
}

void read_ranges(const JsonDocument& document, const json& ranges, Program& program) {
  for (Symbol& symbol : program.symbols) {
    if (const json* range = document.find(ranges, symbol.name.c_str())) {
      symbol.least = read_bound(document, *range, "min_val");
      symbol.most = read_bound(document, *range, "max_val");
    }
  }
}

void read_outputs(const JsonDocument& document, const json& signature, const ValueScope& scope,
                  Program& program) {
  const json& specs = document.member(signature, "output_specs");
  for (const json& spec : document.array(specs)) {
    const auto [kind, value] = document.choice(spec);
    if (kind != "user_output") {
      document.refuse(Code::kUnsupported, spec, "an output {} is not supported",
                      printable_name(kind));
    }
    const json& argument = document.member(value, "arg");
    const auto [form, tensor] = document.choice(argument);
    if (form == "as_none") {
      continue;
    }
    if (form != "as_tensor") {
      document.refuse(Code::kUnsupported, argument, "outputs are tensors, found {}",
                      printable_name(form));
    }
    program.outputs.push_back(scope.use(document.member(tensor, "name"), ValueKind::kTensor));
  }
  if (program.outputs.empty()) {
    document.refuse(Code::kUnsupported, specs, "expected one tensor at least");
  }
}

}  // namespace fsdp2::exported
