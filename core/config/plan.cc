#include "core/config/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr size_t kColumn = 48;  // where origins begin

// Whether a rule may still give the value, as it does where nobody has: resolve.h.
bool is_open(const Plan& plan, const std::string& key) {
  return key == "loss-scale" && plan.options.param_dtype == "auto" && plan.origins.count(key) == 0;
}

// As YAML reads it back.
std::string yaml_text(const Key& key) {
  const std::string text = key.value_text();
  const bool is_text = std::holds_alternative<std::string*>(key.value);
  return is_text && key.form != Form::kWord ? nlohmann::json(text).dump() : text;
}

std::string yaml_line(const Key& key, bool is_still_open, const std::string& origin) {
  std::string name = key.name;
  std::replace(name.begin(), name.end(), '-', '_');
  std::string line = name + ": " + (is_still_open ? "~" : yaml_text(key));
  line.resize(std::max(line.size() + 2, kColumn), ' ');
  return line + "# " + in_one_line(origin) + "\n";
}

}  // namespace

Key Plan::field(const std::string& key) {
  for (Key& known : train_keys(&options)) {
    if (known.name == key) {
      return known;
    }
  }
  throw std::logic_error("there is no key " + key);
}

void Plan::read(const std::string& key, const Value& value) {
  value.read_into(field(key));
  origins[key] = origin_text(value);
}

void Plan::note(const std::string& text) { notes.push_back(in_one_line(text)); }

std::string Plan::origin_of(const std::string& key) const {
  const auto known = origins.find(key);
  return known == origins.end() ? "default" : known->second;
}

std::string Plan::text() const {
  TrainOptions copy = options;
  std::string lines;
  for (const Key& key : train_keys(&copy)) {
    lines += yaml_line(key, is_open(*this, key.name), origin_of(key.name));
  }
  return lines;
}

std::string Plan::shared_text() const {
  return config::shared_text(options, [this](const std::string& key) { return origin_of(key); });
}

std::string origin_text(const Value& value) { return value.node.origin + " " + value.path; }

}  // namespace fsdp2::config
