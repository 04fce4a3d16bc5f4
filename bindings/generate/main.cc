// Writes one generated file to standard output:
//
//   generate model_check|functions|go_calls|go|go_layout|julia|swig INCLUDE_DIRECTORY
//   generate coverage INCLUDE_DIRECTORY < bindings/coverage.txt
//   generate docs INCLUDE_DIRECTORY PAGE < bindings/coverage.txt
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "bindings/generate/write.h"

namespace {

// The umbrella header knows the others and their order.
generate::Api read_headers(const std::string& directory) {
  std::ifstream umbrella(directory + "/fsdp2/fsdp2.h");
  if (!umbrella) throw std::runtime_error(directory + "/fsdp2/fsdp2.h: cannot be read");
  generate::Api api;
  const std::string include = "#include \"";
  for (std::string line; std::getline(umbrella, line);) {
    if (line.compare(0, include.size(), include) != 0) continue;
    const std::string name = line.substr(include.size(), line.rfind('"') - include.size());
    api.headers.push_back(name);
    generate::parse_header(directory + "/fsdp2/" + name, api);
  }
  generate::parse_header(directory + "/fsdp2/fsdp2.h", api);
  return api;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string page = argc == 4 ? argv[3] : "";
  const std::map<std::string, std::function<void(const generate::Api&, std::ostream&)>> writers = {
      {"model_check", generate::write_model_check},
      {"functions", generate::write_functions},
      {"go_calls", generate::write_go_calls},
      {"go", generate::write_go},
      {"go_layout", generate::write_go_layout},
      {"julia", generate::write_julia},
      {"swig", generate::write_swig},
      {"coverage", [](const generate::Api& api,
                      std::ostream& out) { generate::write_coverage(api, std::cin, out); }},
      {"docs", [&page](const generate::Api& api,
                       std::ostream& out) { generate::write_docs(api, page, std::cin, out); }},
  };
  const auto writer = argc == 3 || !page.empty() ? writers.find(argv[1]) : writers.end();
  if (writer == writers.end() || page.empty() == (writer->first == "docs")) {
    std::cerr << "usage: generate model_check|functions|go_calls|go|go_layout|julia|swig|coverage "
                 "INCLUDE_DIRECTORY\n"
                 "       generate docs INCLUDE_DIRECTORY PAGE\n";
    return 2;
  }
  try {
    writer->second(read_headers(argv[2]), std::cout);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return std::cout.flush() ? 0 : 1;
}
