#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/scripted_module.h"

namespace fsdp2::exported {

namespace {

constexpr size_t kMaxModules = size_t{1} << 20;

std::string path_below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

bool is_module_object(const c10::IValue& value) {
  return value.isObject() && value.toObjectRef().type()->is_module();
}

class TreeMaker {
 public:
  explicit TreeMaker(const std::string& title) : title_(title) {}

  std::shared_ptr<ScriptedModule> make(const ScriptObject& root) {
    plan("", root);
    add("", root);
    const bool change_in_place = std::any_of(
        modules_.begin(), modules_.end(),
        [](const auto& entry) { return entry.second->plan().effects.changes_in_place; });
    for (const auto& [path, module] : modules_) {
      std::map<std::string, std::weak_ptr<ScriptedModule>> called;
      for (const ScriptStep& step : module->plan().steps) {
        if (!step.call.empty()) {
          called.emplace(step.call, modules_.at(path_below(path, step.call)));
        }
      }
      module->set_called(std::move(called), change_in_place);
    }
    return modules_.at("");
  }

 private:
  std::string title_of(const std::string& path) const {
    return path.empty() ? title_
                        : fmt::format("{}: module \"{}\"", title_, ckpt::printable_name(path));
  }

  // Plans the module and those that it calls.
  void plan(const std::string& path, const ScriptObject& object) {
    FSDP2_CHECK(
        object->type()->getForwardHooks().empty() && object->type()->getForwardPreHooks().empty(),
        Code::kUnsupported, "{}: has forward hooks: save it without", title_of(path));
    const auto [entry, is_new] = plans_.emplace(path, plan_script(*object->type(), title_of(path)));
    if (!is_new) {
      return;
    }
    for (const ScriptStep& step : entry->second.steps) {
      if (!step.call.empty() && plans_.count(path_below(path, step.call)) == 0) {
        plan(path_below(path, step.call), object_at(object, step.call));
      }
    }
  }

  static ScriptObject object_at(ScriptObject object, const std::string& path) {
    size_t begin = 0;
    for (size_t dot = 0; dot != std::string::npos; begin = dot + 1) {
      dot = path.find('.', begin);
      object = object->getAttr(path.substr(begin, dot - begin)).toObject();
    }
    return object;
  }

  std::shared_ptr<nn::Module> add(const std::string& path, const ScriptObject& object) {
    FSDP2_CHECK(++n_modules_ <= kMaxModules, Code::kUnsupported, "{}: more than {} modules", title_,
                kMaxModules);
    const auto planned = plans_.find(path);
    std::shared_ptr<nn::Module> module;
    if (planned == plans_.end()) {
      module = std::make_shared<ScriptedList>(object, title_of(path));
    } else {
      auto called =
          std::make_shared<ScriptedModule>(object, std::move(planned->second), title_of(path));
      modules_.emplace(path, called);
      module = std::move(called);
    }
    const c10::ClassType& type = *object->type();
    for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
      if (is_module_object(object->getSlot(slot))) {
        const std::string name = type.getAttributeName(slot);
        FSDP2_CHECK(!name.empty() && name.find('.') == std::string::npos, Code::kCorruptData,
                    "{}: a module has the name '{}', expected one without a dot", title_of(path),
                    ckpt::printable_name(name));
        module->register_module(name,
                                add(path_below(path, name), object->getSlot(slot).toObject()));
      }
    }
    return module;
  }

  const std::string& title_;
  size_t n_modules_ = 0;
  std::unordered_map<std::string, ScriptPlan> plans_;                         // by path
  std::unordered_map<std::string, std::shared_ptr<ScriptedModule>> modules_;  // that are called
};

}  // namespace

std::shared_ptr<ScriptedModule> make_scripted_tree(const ScriptObject& object,
                                                   const std::string& title) {
  return TreeMaker(title).make(object);
}

}  // namespace fsdp2::exported
