// A header as the sections of a page: its declarations in their order, each with the comments that
// are about it.
//
// Nothing that a header says is left out. A comment that belongs to no declaration is a section of
// its own, and a function that no comment describes is an error.
#ifndef BINDINGS_GENERATE_SECTIONS_H_
#define BINDINGS_GENERATE_SECTIONS_H_

#include <map>
#include <string>
#include <vector>

#include "bindings/generate/api.h"

namespace generate {

// All lists but one are empty; all of them are, if the comment stands by itself.
struct Section {
  std::string heading;  // empty: none
  std::string
      beginning;  // of all names of an enum, such as "FSDP2_REDUCE_"; empty: none of its own
  std::string comment;
  std::vector<const Constant*> constants;
  std::vector<const Struct*> structs;  // several if they are handles
  std::vector<const Function*> callbacks;
  std::vector<const Function*> functions;  // several if one comment describes them
  std::vector<std::string> initializers;
  std::map<int, std::string> rows;  // comments inside, by the line of what they are about
  int last_line = 0;
};

// comment: the header's first, which is not among the sections.
std::vector<Section> sections_of(const Api& api, const Header& header, std::string& comment);

// "FSDP2_REDUCE_" of FSDP2_REDUCE_SUM and FSDP2_REDUCE_MAX, "FSDP2_" of the statuses.
std::string common_beginning(const std::vector<const Constant*>& constants);

}  // namespace generate

#endif  // BINDINGS_GENERATE_SECTIONS_H_
