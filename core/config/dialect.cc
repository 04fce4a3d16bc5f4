#include "core/config/dialect.h"

#include <algorithm>
#include <utility>

#include "core/base/nearest.h"
#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// One walk over a tree of keys.
class Walk {
 public:
  Walk(const std::vector<Row>& rows, std::string prefix, Plan* plan)
      : rows_(rows), prefix_(std::move(prefix)), plan_(*plan) {}

  // `section`: the path of `map` with a dot at its end, or "".
  void enter(const Node& map, const std::string& section) {
    if (map.kind == Node::Kind::kNull) {
      return;
    }
    if (map.kind != Node::Kind::kMap) {
      const std::string path = prefix_ + section;
      Value{map, path.substr(0, path.size() - 1)}.refuse_type("a mapping");
    }
    for (const auto& [key, node] : map.entries) {
      take(node, section + key);
    }
  }

  void note_ignored() {
    if (!ignored_.empty()) {
      std::string note = "ignored:";
      for (const auto& [why, paths] : ignored_) {
        note += note.back() == ':' ? " " : "; ";
        for (const std::string& path : paths) {
          note += (path == paths.front() ? "" : ", ") + path;
        }
        note += " (" + why + ")";
      }
      plan_.note(note);
    }
  }

 private:
  void take(const Node& node, const std::string& path) {
    const Value value{node, prefix_ + path};
    const Row* row = find(path);
    const bool is_map = node.kind == Node::Kind::kMap || node.kind == Node::Kind::kNull;
    if (is_section(path + ".") && (is_map || row == nullptr)) {
      enter(node, path + ".");
    } else if (row != nullptr) {
      follow(*row, value);
    } else if (const Row* rest = find(path.substr(0, path.size() - last_part(path).size()) + "*")) {
      follow(*rest, value);
    } else {
      const std::string meant = meant_by(path);
      throw ConfigError(node.origin + ": unknown key " + value.path +
                        (meant.empty() ? "" : "; did you mean " + prefix_ + meant + "?"));
    }
  }

  const Row* find(const std::string& path) const {
    const auto row = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const Row& known) { return known.path == path; });
    return row == rows_.end() ? nullptr : &*row;
  }

  void follow(const Row& row, const Value& value) {
    const Node& node = value.node;
    if (row.fate == Row::Fate::kIgnored) {
      note(row.text, value.path);
    } else if (node.kind == Node::Kind::kNull) {
      return;
    } else if (node.text.find("${") != std::string::npos) {
      value.refuse(node.text + ": interpolations are not provided; write the value");
    } else if (row.fate == Row::Fate::kSets) {
      row.read(value, &plan_);
    } else if (!is_harmless(row, node)) {
      value.refuse(node.described() + ": not provided (" + row.text + ")");
    }
  }

  static bool is_harmless(const Row& row, const Node& node) {
    if (!node.is_scalar()) {
      return node.items.empty() && node.entries.empty();
    }
    const bool is_bool = node.kind == Node::Kind::kBool;
    const std::string text = is_bool ? Value{node, ""}.as_word() : node.text;  // False is false
    return std::find(row.harmless.begin(), row.harmless.end(), text) != row.harmless.end();
  }

  void note(const std::string& why, const std::string& path) {
    auto known = std::find_if(ignored_.begin(), ignored_.end(),
                              [&](const auto& entry) { return entry.first == why; });
    if (known == ignored_.end()) {
      known = ignored_.insert(ignored_.end(), {why, {}});
    }
    known->second.push_back(path);
  }

  bool is_section(const std::string& path) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return row.path.rfind(path, 0) == 0; });
  }

  // A key beside it that is spelt like it, else one of that name elsewhere.
  std::string meant_by(const std::string& path) const {
    const std::string section = path.substr(0, path.size() - last_part(path).size());
    std::vector<std::string> beside;
    for (const Row& row : rows_) {
      if (row.path.rfind(section, 0) == 0) {
        beside.push_back(
            row.path.substr(section.size(), row.path.find('.', section.size()) - section.size()));
      }
    }
    const std::string near = nearest(last_part(path), beside);
    if (!near.empty()) {
      return section + near;
    }
    const auto elsewhere = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
      return last_part(row.path) == last_part(path);
    });
    return elsewhere == rows_.end() ? "" : elsewhere->path;
  }

  const std::vector<Row>& rows_;
  const std::string prefix_;
  Plan& plan_;
  // By reason, in the order of the file.
  std::vector<std::pair<std::string, std::vector<std::string>>> ignored_;
};

}  // namespace

Row sets(const std::string& path, const std::string& key) {
  return reads(path, key, [key](const Value& value, Plan* plan) { plan->read(key, value); });
}

Row reads(const std::string& path, const std::string& text, Row::Read read) {
  return {path, Row::Fate::kSets, text, std::move(read), {}};
}

Row ignored(const std::string& path, const std::string& why) {
  return {path, Row::Fate::kIgnored, why, nullptr, {}};
}

Row not_provided(const std::string& path, std::vector<std::string> harmless,
                 const std::string& why) {
  return {path, Row::Fate::kNotProvided, why, nullptr, std::move(harmless)};
}

void apply(const std::vector<Row>& rows, const Node& map, const std::string& prefix, Plan* plan) {
  Walk walk(rows, prefix, plan);
  walk.enter(map, "");
  walk.note_ignored();
}

}  // namespace fsdp2::config
