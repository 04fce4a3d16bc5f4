#include "capi/nouns/module/module_path.h"

#include <string>

#include "capi/argument.h"

namespace fsdp2::capi {

std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root, const char* path,
                                      const char* argument) {
  const std::string name = path == nullptr ? "" : read_text(path, kMaxName, argument);
  return train::find_unit(root, name, argument);
}

std::vector<std::shared_ptr<fsdp::Unit>> find_units(const std::shared_ptr<nn::Module>& root,
                                                    const char* const* paths, size_t count,
                                                    const char* argument) {
  check_array(paths, count, argument);
  std::vector<std::shared_ptr<fsdp::Unit>> units;
  for (size_t i = 0; i < count; ++i) {
    units.push_back(find_unit(root, check_not_null(paths[i], argument), argument));
  }
  return units;
}

}  // namespace fsdp2::capi
