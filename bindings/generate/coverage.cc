#include <istream>
#include <map>
#include <sstream>

#include "bindings/generate/write.h"

namespace generate {

void write_coverage(const Api& api, std::istream& old, std::ostream& out) {
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(old, line);) {
    if (line.empty() || line[0] == '#') {
      out << line << "\n";
    } else {
      rows[line.substr(0, line.find('\t'))] = line;
    }
  }
  for (const auto& function : api.functions) {
    const auto row = rows.find(function.name);
    out << (row != rows.end() ? row->second : function.name + "\traw: \traw: \traw: \traw: ")
        << "\n";
  }
}

}  // namespace generate
