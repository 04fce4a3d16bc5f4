#include <cctype>

#include "bindings/generate/write.h"

namespace generate {

std::string c_spelling(const Type& type) {
  std::string text = (type.is_const ? "const " : "") + type.base + " ";
  if (type.pointers == 1) text += "*";
  if (type.pointers == 2) text += type.is_const ? "*const *" : "**";
  return text;
}

std::string init_macro(const std::string& struct_name) {
  std::string macro = struct_name + "_init";
  for (char& c : macro) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return macro;
}

void write_model_check(const Api& api, std::ostream& out) {
  out << "/* Compiles only if the headers mean what the generator of the bindings understood. */\n"
         "#include \"fsdp2/fsdp2.h\"\n\n";
  for (const auto& constant : api.constants) {
    out << "_Static_assert(" << constant.name << " == " << constant.value << ", \"" << constant.name
        << "\");\n";
  }
  for (const auto& known : api.structs) {
    out << "\nstruct model_" << known.name << " {\n";
    for (const auto& field : known.fields) {
      out << "  " << c_spelling(field.type) << field.name;
      if (field.count) out << "[" << field.count << "]";
      out << ";\n";
    }
    out << "};\n_Static_assert(sizeof(struct model_" << known.name << ") == sizeof(" << known.name
        << "), \"" << known.name << "\");\n";
    for (const auto& field : known.fields) {
      const std::string name = known.name + "." + field.name;
      out << "_Static_assert(offsetof(struct model_" << known.name << ", " << field.name
          << ") == offsetof(" << known.name << ", " << field.name << "), \"" << name << "\");\n"
          << "_Static_assert(_Generic(&((" << known.name << " *)0)->" << field.name << ", "
          << c_spelling(field.type)
          << (field.count ? "(*)[" + std::to_string(field.count) + "]" : "*")
          << ": 1, default: 0), \"" << name << "\");\n";
    }
  }
  out << "\n/* A second declaration of another type does not compile. */\n";
  for (const auto& function : api.functions) {
    out << c_spelling(function.result) << function.name << "(";
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      out << (i ? ", " : "") << c_spelling(function.parameters[i].type)
          << function.parameters[i].name;
    }
    out << (function.parameters.empty() ? "void" : "") << ");\n";
  }
  out << "\nint main(void) { return 0; }\n";
}

}  // namespace generate
