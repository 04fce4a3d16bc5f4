#include "core/base/plugin_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace fsdp2 {

std::string directory_of(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);  // nothing if there is no slash
}

void* open_plugin_file(const char* file, const char* variable, std::string* problem) {
  std::vector<std::string> places;
  if (const char* named = std::getenv(variable); named != nullptr && *named != '\0') {
    places = {named};
  } else {
    places = {directory_of(reinterpret_cast<const void*>(&directory_of)) + file, file};
  }
  problem->clear();
  for (const std::string& place : places) {
    // Local: a plug-in's own symbols are nobody else's.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
    const std::string said = dlerror();
    // That the file is not beside the library says less than what keeps one from being loaded.
    if (problem->empty() || said.find("cannot open shared object file") == std::string::npos ||
        said.find(file) == std::string::npos) {
      *problem = said;
    }
  }
  return nullptr;
}

}  // namespace fsdp2
