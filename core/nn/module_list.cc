#include "core/nn/module_list.h"

#include <string>

#include "core/base/error.h"

namespace fsdp2::nn {

void ModuleList::append(const std::shared_ptr<Module>& module) {
  register_module(std::to_string(children().size()), module);
}

c10::IValue ModuleList::forward(Values /*inputs*/) {
  fail(Code::kUnsupported, "a ModuleList only holds modules: call them, not the list");
}

}  // namespace fsdp2::nn
