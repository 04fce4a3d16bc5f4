#include "core/exported/script/scripted_model.h"

#include "core/base/quiet_thread.h"
#include "core/exported/script/script_archive.h"
#include "core/exported/script/script_calls.h"
#include "core/exported/script/script_objects.h"
#include "core/exported/script/script_types.h"
#include "core/exported/script/script_weights.h"
#include "core/exported/script/scripted_module.h"

namespace fsdp2::exported {

namespace {

ScriptedModel load(const std::string& path, std::optional<at::ScalarType> dtype) {
  const auto archive = std::make_shared<const ScriptArchive>(path);
  const ScriptTypes types(archive);
  ScriptObjects objects(*archive, types, dtype);
  const ScriptObject root = objects.make_root();
  auto values = std::make_shared<ScriptWeights>(archive);
  for (const StoredParameter& parameter : objects.parameters()) {
    values->add(parameter.name, parameter.value);
  }
  const std::shared_ptr<ScriptedModule> module = make_scripted_tree(root, path);
  return {module, std::move(values), module->draws_random_numbers()};
}

}  // namespace

ScriptedModel load_script(const std::string& path, std::optional<at::ScalarType> dtype) {
  ScriptedModel model;
  run_on_deep_stack(kScriptStackBytes, [&] { model = load(path, dtype); });
  return model;
}

}  // namespace fsdp2::exported
