// The table of tests/capi/functions.h.
#include <stdexcept>

#include "bindings/generate/write.h"

namespace generate {
namespace {

bool is_opaque(const Api& api, const std::string& name) {
  for (const auto& known : api.opaque) {
    if (known == name) return true;
  }
  return false;
}

std::string role_by_value(const Api& api, const std::string& base) {
  if (api.is_callback(base)) return "ABI_CALLBACK";
  const Struct* known = api.find_struct(base);
  if (known == nullptr) return "ABI_NUMBER";
  if (!known->is_handle()) throw std::runtime_error(base + ": a struct by value is no handle");
  return "ABI_HANDLE";
}

std::string role_of_struct(const Struct& known, bool is_const) {
  if (known.is_handle()) return is_const ? "ABI_HANDLES" : "ABI_OUTPUT";
  if (known.is_element()) return is_const ? "ABI_INPUT" : "ABI_OUTPUT";
  return is_const || ends_with(known.name, "_options") ? "ABI_OPTIONS" : "ABI_RESULT";
}

std::string role_of(const Api& api, const Variable& variable) {
  const Type& type = variable.type;
  if (type.pointers == 0) return role_by_value(api, type.base);
  if (type.pointers == 2) {
    if (!type.is_const) return "ABI_OUTPUT";
    if (type.base == "char") return "ABI_TEXTS";
    throw std::runtime_error(variable.name + ": expected texts, found " + c_spelling(type));
  }
  if (ends_with(variable.name, "user_data")) return "ABI_USER_DATA";
  if (is_opaque(api, type.base)) return "ABI_FOREIGN";
  if (const Struct* known = api.find_struct(type.base)) {
    return role_of_struct(*known, type.is_const);
  }
  if (!type.is_const) return "ABI_OUTPUT";
  return type.base == "char" ? "ABI_TEXT" : "ABI_INPUT";
}

// The size of the value, or of what it points to.
std::string size_of(const Api& api, const Type& type) {
  if (type.pointers == 2) return "sizeof(void*)";
  if (type.base == "void" || is_opaque(api, type.base)) return "0";
  return "sizeof(" + type.base + ")";
}

void write_variables(const Api& api, const std::string& name, const std::string& owner,
                     const std::vector<Variable>& variables, std::ostream& out) {
  if (variables.empty()) return;
  out << "static const struct abi_variable " << name << "[] = {\n";
  for (const Variable& variable : variables) {
    out << "    {\"" << variable.type.base << "\", \"" << variable.name << "\", "
        << role_of(api, variable) << ", " << variable.optional << ", "
        << size_of(api, variable.type) << ", "
        << (owner.empty() ? "0" : "offsetof(" + owner + ", " + variable.name + ")") << ", "
        << (variable.count ? variable.count : 1) << "},\n";
  }
  out << "};\n";
}

std::string variables_of(const std::string& name, const std::vector<Variable>& variables) {
  return (variables.empty() ? "NULL" : name + "_variables") + ", " +
         std::to_string(variables.size());
}

// One argument as the C call needs it.
std::string take_out(const Api& api, const Type& type, size_t index) {
  const std::string argument = "a[" + std::to_string(index) + "].";
  if (type.pointers > 0) return "(" + c_spelling(type) + ")" + argument + "pointer";
  if (api.is_callback(type.base)) return "(" + type.base + ")" + argument + "function";
  if (api.find_struct(type.base)) return "(" + type.base + "){" + argument + "id}";
  return argument + "as_" + type.base;
}

void write_call(const Api& api, const Function& function, std::ostream& out) {
  out << "static fsdp2_status call_" << function.name << "(const union abi_argument* a) {\n  "
      << (function.parameters.empty() ? "(void)a;\n  " : "")
      << (function.can_fail() ? "return " : "(void)") << function.name << "(";
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    out << (i ? ", " : "") << take_out(api, function.parameters[i].type, i);
  }
  out << ");\n" << (function.can_fail() ? "" : "  return FSDP2_OK;\n") << "}\n";
}

// The other way round: an argument that the library passes.
std::string put_in(const Api& api, const Variable& parameter) {
  const Type& type = parameter.type;
  if (type.pointers > 0) return "{.pointer = (void*)" + parameter.name + "}";
  if (api.find_struct(type.base)) return "{.id = " + parameter.name + ".id}";
  return "{.as_" + type.base + " = " + parameter.name + "}";
}

void write_called_back(const Api& api, const Function& callback, size_t index, std::ostream& out) {
  out << "static " << c_spelling(callback.result) << "called_" << callback.name << "(";
  for (size_t i = 0; i < callback.parameters.size(); ++i) {
    out << (i ? ", " : "") << c_spelling(callback.parameters[i].type)
        << callback.parameters[i].name;
  }
  out << ") {\n  const union abi_argument arguments[] = {";
  for (size_t i = 0; i < callback.parameters.size(); ++i) {
    out << (i ? ", " : "") << put_in(api, callback.parameters[i]);
  }
  out << "};\n  " << (callback.can_fail() ? "return " : "(void)")
      << "abi_called_back(&abi_callbacks[" << index << "], arguments);\n}\n";
}

void write_structs(const Api& api, std::ostream& out) {
  std::string rows;
  size_t n = 0;
  for (const auto& known : api.structs) {
    if (known.is_handle()) continue;
    write_variables(api, known.name + "_variables", known.name, known.fields, out);
    std::string defaults = "NULL";
    if (!known.defaults.empty()) {
      defaults = known.name + "_defaults";
      out << "static const " << known.name << " " << defaults << " = " << init_macro(known.name)
          << ";\n";
      defaults = "&" + defaults;
    }
    rows += "    {\"" + known.name + "\", " + variables_of(known.name, known.fields) + ", sizeof(" +
            known.name + "), " + defaults + "},\n";
    ++n;
  }
  out << "const struct abi_struct abi_structs[] = {\n"
      << rows << "};\n"
      << "const size_t abi_n_structs = " << n << ";\n\n";
}

void write_functions_table(const Api& api, std::ostream& out) {
  for (const auto& function : api.functions) {
    write_variables(api, function.name + "_variables", "", function.parameters, out);
    write_call(api, function, out);
  }
  out << "const struct abi_function abi_functions[] = {\n";
  for (const auto& function : api.functions) {
    out << "    {\"" << function.name << "\", " << variables_of(function.name, function.parameters)
        << ", " << function.can_fail() << ", call_" << function.name << "},\n";
  }
  out << "};\nconst size_t abi_n_functions = " << api.functions.size() << ";\n\n";
}

void write_callbacks(const Api& api, std::ostream& out) {
  for (size_t i = 0; i < api.callbacks.size(); ++i) {
    const Function& callback = api.callbacks[i];
    write_variables(api, callback.name + "_variables", "", callback.parameters, out);
    write_called_back(api, callback, i, out);
  }
  out << "const struct abi_callback abi_callbacks[] = {\n";
  for (const auto& callback : api.callbacks) {
    out << "    {\"" << callback.name << "\", " << variables_of(callback.name, callback.parameters)
        << ", " << callback.can_fail() << ", (void (*)(void))called_" << callback.name << "},\n";
  }
  out << "};\nconst size_t abi_n_callbacks = " << api.callbacks.size() << ";\n";
}

}  // namespace

void write_functions(const Api& api, std::ostream& out) {
  out << "#include \"tests/capi/functions.h\"\n\n";
  write_structs(api, out);
  write_functions_table(api, out);
  write_callbacks(api, out);
}

}  // namespace generate
