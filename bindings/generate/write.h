// The writers: each turns the declared API into the text of one file.
#ifndef BINDINGS_GENERATE_WRITE_H_
#define BINDINGS_GENERATE_WRITE_H_

#include <ostream>
#include <string>

#include "bindings/generate/api.h"

namespace generate {

// C: compiles only if sizes, offsets, types, numbers and signatures are what the parser understood.
void write_model_check(const Api& api, std::ostream& out);

// C: the table of tests/capi/functions.h.
void write_functions(const Api& api, std::ostream& out);

// Go: C wrappers that bring a failing call's record along, their Go side, and the proof of its
// struct layouts.
void write_go_calls(const Api& api, std::ostream& out);
void write_go(const Api& api, std::ostream& out);
void write_go_layout(const Api& api, std::ostream& out);

// Julia: constants, isbits structs with the defaults of the _INIT macros, one @ccall per function.
void write_julia(const Api& api, std::ostream& out);

// SWIG: the handles, structs, constants and headers that bindings/java/src/main/swig/fsdp2.i wraps.
void write_swig(const Api& api, std::ostream& out);

// The table of bound symbols with rows for what is new and without those that are gone; what `old`
// says stays.
void write_coverage(const Api& api, std::istream& old, std::ostream& out);

// Markdown: one page of docs/api, such as "mesh.md" or "README.md". coverage: coverage.txt, for how
// each language offers a function.
void write_docs(const Api& api, const std::string& page, std::istream& coverage, std::ostream& out);

// The type as C spells it, with a space where a name may follow: "const char *".
std::string c_spelling(const Type& type);
// "FSDP2_MESH_OPTIONS_INIT" of "fsdp2_mesh_options".
std::string init_macro(const std::string& struct_name);

}  // namespace generate

#endif  // BINDINGS_GENERATE_WRITE_H_
