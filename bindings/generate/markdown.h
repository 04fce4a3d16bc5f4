// Comments of the headers as Markdown: identifiers become code, and those that the headers declare
// become links to where the reference describes them.
#ifndef BINDINGS_GENERATE_MARKDOWN_H_
#define BINDINGS_GENERATE_MARKDOWN_H_

#include <map>
#include <string>
#include <vector>

namespace generate {

class Markdown {
 public:
  // What an identifier, a header ("mesh.h") or the beginning of an enum's names ("FSDP2_REDUCE_")
  // links to: "mesh.md#fsdp2_mesh_create".
  std::map<std::string, std::string> targets;

  // A comment as paragraphs, with lines of about 110 characters. What the comment indents is kept
  // as it is. parameters: names that are code where a colon follows them.
  std::string paragraphs(const std::string& comment,
                         const std::vector<std::string>& parameters = {}) const;
  // A comment as one line that fits into a cell of a table.
  std::string cell(const std::string& comment) const;
  // The first sentence of a comment, likewise.
  std::string first_sentence(const std::string& comment) const;
  // The identifier as code, with a link if it has a target.
  std::string link(const std::string& identifier) const;

 private:
  std::string inline_text(const std::string& text,
                          const std::vector<std::string>& parameters) const;
  std::string word(const std::string& token, const std::string& last_identifier) const;
};

// What follows # in the address of a heading.
std::string anchor(const std::string& heading);

}  // namespace generate

#endif  // BINDINGS_GENERATE_MARKDOWN_H_
