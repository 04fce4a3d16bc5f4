#include "bindings/generate/write.h"

namespace generate {

void write_swig(const Api& api, std::ostream& out) {
  out << "// What fsdp2.i needs to know by name.\n";
  for (const auto& constant : api.constants) {
    // Quoted, or SWIG takes no negative one.
    out << "%javaconstvalue(\"" << constant.value << "\") " << constant.name << ";\n";
  }
  for (const auto& known : api.structs) {
    if (known.is_handle()) {
      out << "FSDP2_HANDLE(" << known.name << ")\n";
      continue;
    }
    if (known.is_element()) {
      out << "FSDP2_ELEMENT(" << known.name << ")\n";
      continue;
    }
    // SWIG's own accessors would hand out addresses in place of arrays and texts.
    std::string free_fields;
    for (const auto& field : known.fields) {
      if (field.count) out << "%immutable " << known.name << "::" << field.name << ";\n";
      if (api.is_callback(field.type.base)) {
        out << "%ignore " << known.name << "::" << field.name << ";\n";
        continue;
      }
      if (field.type.pointers == 0) continue;
      out << "%ignore " << known.name << "::" << field.name << ";\n";
      const bool kept_object = field.name.find("user_data") != std::string::npos;
      free_fields +=
          (kept_object ? "release_callback($self->" : "free((void *)$self->") + field.name + ");";
    }
    out << "FSDP2_STRUCT(" << known.name << ", " << free_fields << ", ";
    if (known.defaults.empty()) {
      out << "{.struct_size = sizeof(" << known.name << ")})\n";
    } else {
      out << init_macro(known.name) << ")\n";
    }
  }
  for (const auto& header : api.headers) out << "%include \"fsdp2/" << header << "\"\n";
}

}  // namespace generate
