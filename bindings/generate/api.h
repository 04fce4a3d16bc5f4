// What the C headers declare, as data: the one source of every generated binding.
//
// The headers are regular C (conventions in include/fsdp2/fsdp2.h), so a strict parser of that
// subset is enough and needs no compiler: whatever it does not know is an error with file and line,
// never something left out. model_check.cc has a C compiler confirm what was understood.
#ifndef BINDINGS_GENERATE_API_H_
#define BINDINGS_GENERATE_API_H_

#include <cstdint>
#include <string>
#include <vector>

namespace generate {

// `const base *const *` is {base, true, 2}; the const after the first star follows from the second.
struct Type {
  std::string base;  // "int32_t", "fsdp2_mesh", "struct DLManagedTensorVersioned", "void"
  bool is_const = false;
  int pointers = 0;
};

struct Variable {  // a field or a parameter
  Type type;
  std::string name;
  int64_t count = 0;       // of elements if it is an array, else 0
  std::string count_name;  // as the header spells it
  bool optional = false;   // marked (opt): may be NULL
  int line = 0;            // of a field: where its declaration begins
};

struct Constant {  // an enumerator or a numeric macro
  std::string name;
  int64_t value = 0;
  int line = 0;
};

struct Struct {
  std::string name;
  std::vector<Variable> fields;
  std::vector<std::string> defaults;  // of each field, from the _INIT macro; empty if there is none

  bool is_handle() const { return fields.size() == 1 && fields[0].name == "id"; }
  // An element of arrays: it has no size of its own.
  bool is_element() const { return !is_handle() && fields[0].name != "struct_size"; }
};

struct Function {
  Type result;
  std::string name;
  std::vector<Variable> parameters;

  bool can_fail() const { return result.base == "fsdp2_status" && result.pointers == 0; }
};

struct Comment {
  int first_line = 0, last_line = 0;
  bool behind_code = false;  // on its first line
  std::string text;          // without its stars; lines are kept, and what they are indented by
};

struct Declaration {
  enum Kind { kConstants, kStruct, kCallback, kFunction, kInitializer };
  Kind kind = kConstants;
  size_t index = 0, count = 1;  // in the list of its kind
  int first_line = 0, last_line = 0;
};

// One header as it is read from top to bottom.
struct Header {
  std::string name;
  std::vector<Comment> comments;
  std::vector<Declaration> declarations;
};

struct Api {
  std::vector<std::string> headers;  // in the order that declares before it uses
  std::vector<Header> contents;      // of each header that was parsed
  std::vector<Constant> constants;
  std::vector<Struct> structs;
  std::vector<Function> callbacks;  // function pointer types
  std::vector<Function> functions;
  std::vector<std::string> opaque;        // structs that are only declared
  std::vector<std::string> initializers;  // macros: "FSDP2_INT(value)"

  const Struct* find_struct(const std::string& name) const;
  bool is_callback(const std::string& name) const;
};

inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Adds what one header declares. Throws std::runtime_error("FILE:LINE: ...").
void parse_header(const std::string& path, Api& api);

}  // namespace generate

#endif  // BINDINGS_GENERATE_API_H_
