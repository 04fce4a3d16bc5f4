#include "bindings/generate/sections.h"

#include <cctype>
#include <stdexcept>
#include <utility>

#include "bindings/generate/write.h"

namespace generate {
namespace {

constexpr char kStatus[] = "fsdp2_status";

bool starts_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

// What every function of such a name does, by the conventions.
std::string usual_comment(const Function& function) {
  if (ends_with(function.name, "_options_init")) {
    const std::string options = function.name.substr(0, function.name.size() - 5);
    return "Fills the struct with its defaults, as " + init_macro(options) +
           " does. struct_size is the caller's sizeof; see convention 5.";
  }
  if (ends_with(function.name, "_destroy")) return "Destroys a handle; see convention 2.";
  return "";
}

class SectionReader {
 public:
  SectionReader(const Api& api, const Header& header) : api_(api), header_(header) {}

  std::vector<Section> read(std::string& first) {
    size_t comment = 0;
    const auto& comments = header_.comments;
    if (!comments.empty()) first = comments[comment++].text;
    for (const auto& declaration : header_.declarations) {
      Section section;
      for (; comment < comments.size(); ++comment) {
        if (comments[comment].first_line > declaration.last_line) break;
        place(comments[comment], declaration, section);
      }
      add(declaration, section);
    }
    for (; comment < comments.size(); ++comment) by_itself(comments[comment]);
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw std::runtime_error(header_.name + ":" + std::to_string(line) + ": " + what);
  }

  void place(const Comment& comment, const Declaration& declaration, Section& section) {
    if (comment.first_line >= declaration.first_line) {
      std::string& row = section.rows[row_of(comment, declaration)];
      row += (row.empty() ? "" : "\n") + comment.text;
    } else if (comment.behind_code) {
      fail(comment.first_line, "this comment is behind no declaration");
    } else if (comment.last_line + 1 == declaration.first_line) {
      section.comment = comment.text;
    } else {
      by_itself(comment);
    }
  }

  // The line of the field or constant that a comment inside a declaration is about: the last one
  // before it if it is behind code, or else the next.
  int row_of(const Comment& comment, const Declaration& declaration) const {
    std::vector<int> lines;
    for (size_t i = 0; i < declaration.count; ++i) {
      if (declaration.kind == Declaration::kConstants)
        lines.push_back(api_.constants[declaration.index + i].line);
    }
    if (declaration.kind == Declaration::kStruct) {
      for (const auto& field : api_.structs[declaration.index].fields) lines.push_back(field.line);
    }
    int before = 0, behind = 0;
    for (const int line : lines) {
      if (line <= comment.first_line) before = line;
      if (line > comment.last_line && behind == 0) behind = line;
    }
    const int row = comment.behind_code ? before : behind;
    if (row == 0) fail(comment.first_line, "this comment is about no field and no constant");
    return row;
  }

  void by_itself(const Comment& comment) {
    Section section;
    if (starts_with(comment.text, "---- ")) {
      section.heading = comment.text.substr(5);
      section.heading[0] = static_cast<char>(std::toupper(section.heading[0]));
    } else {
      section.comment = comment.text;
    }
    found_.push_back(section);
  }

  void add(const Declaration& declaration, Section& section) {
    section.last_line = declaration.last_line;
    switch (declaration.kind) {
      case Declaration::kConstants:
        for (size_t i = 0; i < declaration.count; ++i)
          section.constants.push_back(&api_.constants[declaration.index + i]);
        section.heading = heading_of(section.constants);
        if (section.constants.size() > 1 && section.heading != kStatus)
          section.beginning = common_beginning(section.constants);
        break;
      case Declaration::kStruct:
        section.structs = {&api_.structs[declaration.index]};
        section.heading = section.structs[0]->is_handle() ? "Handles" : section.structs[0]->name;
        break;
      case Declaration::kCallback:
        section.callbacks = {&api_.callbacks[declaration.index]};
        section.heading = section.callbacks[0]->name;
        break;
      case Declaration::kFunction:
        section.functions = {&api_.functions[declaration.index]};
        section.heading = section.functions[0]->name;
        if (section.comment.empty()) section.comment = usual_comment(*section.functions[0]);
        break;
      case Declaration::kInitializer:
        section.initializers = {api_.initializers[declaration.index]};
        section.heading = "Initializers";
        break;
    }
    if (!found_.empty() && join(found_.back(), declaration, section)) return;
    if (!section.functions.empty() && section.comment.empty())
      fail(declaration.first_line, section.heading + " has no comment, and follows none that has");
    found_.push_back(section);
  }

  static std::string heading_of(const std::vector<const Constant*>& constants) {
    if (constants.size() == 1) return constants[0]->name;
    const std::string beginning = common_beginning(constants);
    return beginning == "FSDP2_" ? kStatus : beginning + "...";
  }

  // What stands on the next line without a comment above it belongs to the same section, if it is
  // of the same kind: a function that the comment describes, too, a macro, a handle.
  static bool join(Section& before, const Declaration& declaration, const Section& section) {
    if (!section.comment.empty() || before.last_line + 1 != declaration.first_line) return false;
    if (!section.functions.empty() && !before.functions.empty()) {
      before.functions.push_back(section.functions[0]);
      before.heading += ", " + section.heading;
    } else if (!section.callbacks.empty() && !before.callbacks.empty()) {
      before.callbacks.push_back(section.callbacks[0]);
      before.heading += ", " + section.heading;
    } else if (!section.initializers.empty() && !before.initializers.empty()) {
      before.initializers.push_back(section.initializers[0]);
    } else if (section.constants.size() == 1 && !before.constants.empty()) {
      before.constants.push_back(section.constants[0]);
      before.heading += ", " + section.heading;
    } else if (!section.structs.empty() && !before.structs.empty() &&
               section.heading == before.heading) {
      before.structs.push_back(section.structs[0]);
    } else {
      return false;
    }
    before.rows.insert(section.rows.begin(), section.rows.end());
    before.last_line = section.last_line;
    return true;
  }

  const Api& api_;
  const Header& header_;
  std::vector<Section> found_;
};

}  // namespace

std::vector<Section> sections_of(const Api& api, const Header& header, std::string& comment) {
  return SectionReader(api, header).read(comment);
}

std::string common_beginning(const std::vector<const Constant*>& constants) {
  std::string beginning = constants.empty() ? "" : constants[0]->name;
  for (const auto* constant : constants) {
    while (!starts_with(constant->name, beginning))
      beginning.erase(beginning.rfind('_', beginning.size() - 2) + 1);
  }
  return beginning;
}

}  // namespace generate
