// The API reference, docs/api: a page for each header, and one with the conventions and an index.
#include <algorithm>
#include <istream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "bindings/generate/markdown.h"
#include "bindings/generate/sections.h"
#include "bindings/generate/write.h"

namespace generate {
namespace {

constexpr char kUmbrella[] = "fsdp2.h";
constexpr char kIndex[] = "README.md";
constexpr size_t kSignatureLength = 100;

struct Page {
  std::string header, file, comment;
  std::vector<Section> sections;
};

std::string file_of(const std::string& header) {
  return header == kUmbrella ? kIndex : header.substr(0, header.size() - 2) + ".md";
}

// before: "typedef " or nothing.
std::string signature(const Function& function, const std::string& before,
                      const std::string& name) {
  const std::string text = before + c_spelling(function.result) + name + "(";
  const std::string indent = ",\n" + std::string(text.size(), ' ');
  std::string one_line = text, lines = text;
  for (const auto& parameter : function.parameters) {
    const bool first = &parameter == &function.parameters.front();
    const std::string declared =
        c_spelling(parameter.type) + parameter.name + (parameter.optional ? " /*(opt)*/" : "");
    one_line += (first ? "" : ", ") + declared;
    lines += (first ? "" : indent) + declared;
  }
  const std::string end = function.parameters.empty() ? "void);\n" : ");\n";
  return (one_line.size() + 2 > kSignatureLength ? lines : one_line) + end;
}

// "Tensor (Drop), Tensor::destroy" as code; "inside ..." and "raw: ..." as what they say to who
// looks for a function of the language.
std::string offered(const std::string& cell) {
  if (cell.compare(0, 7, "inside ") == 0) {
    const bool has_defaults = cell == "inside zero-value" || cell.find("defaults") != cell.npos;
    return has_defaults ? "not needed (its own options have the defaults)"
                        : "not needed (the binding itself calls it: " + cell.substr(7) + ")";
  }
  if (cell.compare(0, 5, "raw: ") == 0) return "the raw layer only (" + cell.substr(5) + ")";
  std::string text;
  for (size_t begin = 0; begin <= cell.size();) {
    int depth = 0;
    size_t end = begin;
    for (; end < cell.size() && (depth != 0 || cell.compare(end, 2, ", ") != 0); ++end)
      depth += cell[end] == '(' ? 1 : cell[end] == ')' ? -1 : 0;
    text += (text.empty() ? "`" : ", `") + cell.substr(begin, end - begin) + "`";
    begin = end + 2;
  }
  return text;
}

// Links from a page to itself name no page. begin: "](mesh.md#".
std::string without(std::string text, const std::string& begin) {
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;)
    text.replace(at, begin.size(), "](#");
  return text;
}

class DocsWriter {
 public:
  DocsWriter(const Api& api, std::istream& coverage) : api_(api) {
    for (const auto& header : api.contents) {
      Page page{header.name, file_of(header.name), "", {}};
      page.sections = sections_of(api, header, page.comment);
      pages_.push_back(std::move(page));
    }
    for (std::string line; std::getline(coverage, line);) {
      std::istringstream cells(line);
      std::vector<std::string> row;
      for (std::string cell; std::getline(cells, cell, '\t');) row.push_back(cell);
      if (row.size() == 5) coverage_[row[0]] = row;
    }
    for (const auto& page : pages_) add_targets(page);
  }

  void write(const std::string& file, std::ostream& out) {
    const auto page = std::find_if(pages_.begin(), pages_.end(),
                                   [&](const Page& known) { return known.file == file; });
    if (page == pages_.end()) throw std::runtime_error("no header gives the page " + file);
    out << "<!-- Made of include/fsdp2/" << page->header
        << " by ./bazelw run //bindings:update. Do not edit it here. -->\n";
    std::ostringstream text;
    if (page->header == kUmbrella) {
      write_index(*page, text);
    } else {
      write_page(*page, text);
    }
    out << without(text.str(), "](" + file + "#");
  }

 private:
  void add_targets(const Page& page) {
    auto& targets = markdown_.targets;
    targets[page.header] = page.file;
    for (const auto& section : page.sections) {
      const std::string target = page.file + "#" + anchor(section.heading);
      for (const auto* constant : section.constants) targets[constant->name] = target;
      if (!section.beginning.empty()) targets[section.beginning] = target;
      if (section.heading == "fsdp2_status") targets[section.heading] = target;
      for (const auto* known : section.structs) {
        targets[known->name] = target;
        if (!known->defaults.empty()) targets[init_macro(known->name)] = target;
      }
      for (const auto* callback : section.callbacks) targets[callback->name] = target;
      for (const auto& macro : section.initializers)
        targets[macro.substr(0, macro.find('('))] = target;
      for (const auto* function : section.functions) targets[function->name] = target;
    }
  }

  // --- A page ---

  void write_page(const Page& page, std::ostream& out) const {
    out << "# " << page.header << "\n\n[C API](" << kIndex << ")\n\n"
        << markdown_.paragraphs(page.comment);
    contents(page, out);
    bool is_below_declaration = false;  // what stands by itself must not read as a part of that
    for (const auto& section : page.sections) {
      if (section.heading.empty()) {
        out << (is_below_declaration ? "---\n\n" : "") << markdown_.paragraphs(section.comment);
      } else if (section.functions.empty() && section.constants.empty() &&
                 section.callbacks.empty() && section.structs.empty() &&
                 section.initializers.empty()) {
        out << "## " << section.heading << "\n\n";
      } else {
        out << "### " << section.heading << "\n\n";
        write_functions(section, out);
        write_callback(section, out);
        write_constants(section, out);
        write_structs(section, out);
        write_initializers(section, out);
      }
      is_below_declaration = section.last_line != 0;
    }
  }

  void contents(const Page& page, std::ostream& out) const {
    std::string functions, others;
    for (const auto& section : page.sections) {
      for (const auto* function : section.functions) {
        const bool first = function == section.functions[0];
        functions += "| " + markdown_.link(function->name) + " | " +
                     (first ? markdown_.first_sentence(section.comment)
                            : "With " + markdown_.link(section.functions[0]->name) + ".") +
                     " |\n";
      }
      if (section.functions.empty() && section.last_line != 0) {
        others += (others.empty() ? "" : ", ") + std::string("[`") + section.heading + "`](#" +
                  anchor(section.heading) + ")";
      }
    }
    if (!functions.empty()) out << "| function | what it does |\n|---|---|\n" << functions << "\n";
    if (!others.empty()) out << "Types and numbers: " << others << "\n\n";
  }

  void write_functions(const Section& section, std::ostream& out) const {
    if (section.functions.empty()) return;
    out << "```c\n";
    for (const auto* function : section.functions) out << signature(*function, "", function->name);
    out << "```\n" << markdown_.paragraphs(section.comment, parameters_of(section.functions));
    types_of(section.functions, out);
    for (const auto* function : section.functions) {
      const auto row = coverage_.find(function->name);
      if (row == coverage_.end()) throw std::runtime_error(function->name + " has no coverage");
      if (section.functions.size() > 1) out << "`" << function->name << "`: ";
      out << "Rust " << offered(row->second[1]) << " · Go " << offered(row->second[2]) << " · Java "
          << offered(row->second[3]) << " · Julia " << offered(row->second[4]) << "\n\n";
    }
  }

  void write_callback(const Section& section, std::ostream& out) const {
    if (section.callbacks.empty()) return;
    out << "```c\n";
    for (const auto* callback : section.callbacks)
      out << signature(*callback, "typedef ", "(*" + callback->name + ")");
    out << "```\n" << markdown_.paragraphs(section.comment, parameters_of(section.callbacks));
    types_of(section.callbacks, out);
  }

  void write_constants(const Section& section, std::ostream& out) const {
    if (section.constants.empty()) return;
    out << markdown_.paragraphs(section.comment) << "| name | value | meaning |\n|---|---|---|\n";
    for (const auto* constant : section.constants) {
      out << "| `" << constant->name << "` | " << constant->value << " | "
          << row_text(section, constant->line) << " |\n";
    }
    out << "\n";
  }

  void write_structs(const Section& section, std::ostream& out) const {
    if (section.structs.empty()) return;
    out << markdown_.paragraphs(section.comment);
    if (section.structs[0]->is_handle()) {
      for (const auto* handle : section.structs) {
        const std::string header = handle->name.substr(6) + ".h";
        out << "- `" << handle->name << "`";
        if (markdown_.targets.count(header) != 0) out << ": " << markdown_.cell(header);
        out << "\n";
      }
      out << "\n";
      return;
    }
    const Struct& known = *section.structs[0];
    const bool has_defaults = !known.defaults.empty();
    if (has_defaults) {
      const std::string function = known.name + "_init";
      out << "`" << init_macro(known.name) << "`";
      if (markdown_.targets.count(function) != 0) {
        out << " and " << markdown_.link(function) << " give the defaults.\n\n";
      } else {
        out << " gives the defaults.\n\n";
      }
    }
    out << "| field | type | " << (has_defaults ? "default | " : "") << "meaning |\n|---|---|"
        << (has_defaults ? "---|" : "") << "---|\n";
    for (size_t i = 0; i < known.fields.size();) {
      size_t end = i;
      std::string names, defaults;
      for (; end < known.fields.size() && known.fields[end].line == known.fields[i].line; ++end) {
        const auto& field = known.fields[end];
        names += (end == i ? "`" : ", `") + field.name +
                 (field.count != 0 ? "[" + field.count_name + "]" : "") + "`";
        if (has_defaults) defaults += (end == i ? "" : ", ") + default_text(known.defaults[end]);
      }
      out << "| " << names << " | " << type_text(known.fields[i].type) << " | "
          << (has_defaults ? defaults + " | " : "") << field_text(section, known.fields[i])
          << " |\n";
      i = end;
    }
    out << "\n";
  }

  void write_initializers(const Section& section, std::ostream& out) const {
    if (section.initializers.empty()) return;
    out << markdown_.paragraphs(section.comment) << "```c\n";
    for (const auto& macro : section.initializers) out << macro << "\n";
    out << "```\n\n";
  }

  std::string field_text(const Section& section, const Variable& field) const {
    const std::string text = row_text(section, field.line);
    return text.empty() && field.name == "struct_size"
               ? "see [convention 5](README.md#convention-5)"
               : text;
  }

  std::string row_text(const Section& section, int line) const {
    const auto row = section.rows.find(line);
    return row == section.rows.end() ? "" : markdown_.cell(row->second);
  }

  std::string default_text(const std::string& text) const {
    if (text.compare(0, 17, "(uint32_t)sizeof(") == 0) return "its size";
    if (text == "(constchar*)0" || text == "NULL") return "`NULL`";
    return markdown_.targets.count(text) != 0 ? markdown_.link(text) : "`" + text + "`";
  }

  std::string type_text(const Type& type) const {
    std::string text = "`" + c_spelling(type);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "`";
    const auto target = markdown_.targets.find(type.base);
    return target == markdown_.targets.end() ? text : "[" + text + "](" + target->second + ")";
  }

  // The structs and callbacks that functions take or give: a signature cannot have links.
  void types_of(const std::vector<const Function*>& functions, std::ostream& out) const {
    std::string text;
    std::set<std::string> seen;
    for (const auto* function : functions) {
      for (const auto& parameter : function->parameters) {
        const Struct* known = api_.find_struct(parameter.type.base);
        const bool told = known ? !known->is_handle() : api_.is_callback(parameter.type.base);
        if (!told || !seen.insert(parameter.type.base).second) continue;
        text += (text.empty() ? "" : ", ") + markdown_.link(parameter.type.base);
      }
    }
    if (!text.empty()) out << "Types: " << text << "\n\n";
  }

  static std::vector<std::string> parameters_of(const std::vector<const Function*>& functions) {
    std::vector<std::string> names;
    for (const auto* function : functions) {
      for (const auto& parameter : function->parameters) names.push_back(parameter.name);
    }
    return names;
  }

  // --- The index ---

  // The umbrella's comment: a title, a line about what follows, and numbered conventions.
  void write_index(const Page& index, std::ostream& out) const {
    std::istringstream lines(index.comment);
    std::string line, text;
    std::getline(lines, line);
    out << "# C API\n\n" << markdown_.cell(line) << "\n\n## Headers\n\n";
    for (const auto& section : index.sections) out << markdown_.paragraphs(section.comment);
    out << "| header | functions | |\n|---|---|---|\n";
    for (const auto& page : pages_) {
      if (page.header == kUmbrella) continue;
      size_t n = 0;
      for (const auto& section : page.sections) n += section.functions.size();
      out << "| " << markdown_.cell(page.header) << " | " << n << " | "
          << markdown_.first_sentence(page.comment) << " |\n";
    }
    out << "\n## Conventions\n\n";
    for (int number = 0; std::getline(lines, line);) {
      const size_t digits = line.find_first_not_of(' ');
      const std::string next = std::to_string(number + 1) + ". ";
      if (digits != std::string::npos && line.compare(digits, next.size(), next) == 0) {
        out << markdown_.paragraphs(text) << "### Convention " << ++number << "\n\n";
        text.clear();
        line.erase(0, digits + next.size());
      } else if (digits != std::string::npos) {
        line.erase(0, digits);
      }
      text += line + "\n";
    }
    out << markdown_.paragraphs(text) << "## Functions\n\n";
    std::set<std::string> sorted;
    for (const auto& page : pages_) {
      for (const auto& section : page.sections) {
        for (const auto* function : section.functions) sorted.insert(function->name);
      }
    }
    for (const auto& name : sorted) out << "- " << markdown_.link(name) << "\n";
  }

  const Api& api_;
  Markdown markdown_;
  std::vector<Page> pages_;
  std::map<std::string, std::vector<std::string>> coverage_;
};

}  // namespace

void write_docs(const Api& api, const std::string& page, std::istream& coverage,
                std::ostream& out) {
  DocsWriter(api, coverage).write(page, out);
}

}  // namespace generate
