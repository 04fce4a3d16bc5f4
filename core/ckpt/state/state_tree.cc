#include "core/ckpt/state/state_tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// Whether a list is entered, as Python's flattening does: if there is a tensor or a dict in it.
bool is_entered(const PythonValue& value) {
  const PythonList* list = value.as<PythonList>();
  return list != nullptr &&
         std::any_of(list->items.begin(), list->items.end(), [](const PythonValue& item) {
           return item.as<StoredTensor>() != nullptr || item.as<PythonDict>() != nullptr ||
                  is_entered(item);
         });
}

std::optional<PathPart> path_part(const PythonValue& key) {
  if (const auto* text = key.as<std::string>()) {
    return *text;
  }
  if (const int64_t* number = key.as<int64_t>()) {
    return *number;
  }
  return std::nullopt;
}

// A dict whose keys make no names is a value of its own.
bool makes_names(const PythonDict& dict) {
  return std::all_of(dict.items.begin(), dict.items.end(),
                     [](const PythonItem& item) { return path_part(item.key).has_value(); });
}

StatePath below(StatePath path, PathPart part) {
  path.push_back(std::move(part));
  return path;
}

void add_leaves(const PythonValue& value, const StatePath& path, std::vector<TreeLeaf>* leaves) {
  const auto* dict = value.as<PythonDict>();
  if (dict != nullptr && makes_names(*dict)) {
    for (const PythonItem& item : dict->items) {
      add_leaves(item.value, below(path, *path_part(item.key)), leaves);
    }
  } else if (is_entered(value)) {
    const auto& items = value.as<PythonList>()->items;
    for (size_t i = 0; i < items.size(); ++i) {
      add_leaves(items[i], below(path, static_cast<int64_t>(i)), leaves);
    }
  } else {
    leaves->push_back({path, &value});
  }
}

// Puts values where their paths lead.
class TreeMaker {
 public:
  explicit TreeMaker(const std::vector<std::pair<StatePath, PythonValue>>& values) {
    for (const auto& [path, value] : values) {
      for (size_t depth = 0; depth < path.size(); ++depth) {
        children_[prefix(path, depth)].insert(path[depth]);
      }
    }
  }

  void put(PythonValue& node, const StatePath& path, size_t depth, const PythonValue& value) const;

 private:
  static StatePath prefix(const StatePath& path, size_t depth) {
    return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth)};
  }
  PythonValue make_container(const StatePath& path) const;

  std::map<StatePath, std::set<PathPart>> children_;
};

// A list if its items are numbered from 0 on without a gap. They may come in any order: a
// checkpoint lists tensors before values, or rank by rank.
PythonValue TreeMaker::make_container(const StatePath& path) const {
  const std::set<PathPart>& children = children_.at(path);
  const auto count = static_cast<int64_t>(children.size());
  if (*children.begin() == PathPart(int64_t{0}) && *children.rbegin() == PathPart(count - 1)) {
    return PythonList{std::vector<PythonValue>(children.size())};
  }
  return PythonDict{};
}

void TreeMaker::put(PythonValue& node, const StatePath& path, size_t depth,
                    const PythonValue& value) const {
  if (depth == path.size()) {
    FSDP2_CHECK(node.is_none(), Code::kInvalidArgument, "{} is there twice",
                printable_name(name_of(path)));
    node = value;
    return;
  }
  if (node.is_none()) {
    node = make_container(prefix(path, depth));
  }
  const int64_t* number = std::get_if<int64_t>(&path[depth]);
  auto* list = node.as<PythonList>();
  if (list != nullptr && number != nullptr && static_cast<size_t>(*number) < list->items.size()) {
    put(list->items[static_cast<size_t>(*number)], path, depth + 1, value);
    return;
  }
  auto* dict = node.as<PythonDict>();
  FSDP2_CHECK(dict != nullptr, Code::kInvalidArgument, "{} lies inside another value",
              printable_name(name_of(path)));
  const PythonValue key =
      number != nullptr ? PythonValue(*number) : PythonValue(std::get<std::string>(path[depth]));
  // Paths come in order: what is looked for is nearly always the last.
  for (auto item = dict->items.rbegin(); item != dict->items.rend(); ++item) {
    if (item->key == key) {
      put(item->value, path, depth + 1, value);
      return;
    }
    if (depth + 1 == path.size()) {
      break;  // leaves are unique: their names were checked by the source
    }
  }
  dict->items.push_back({key, {}});
  put(dict->items.back().value, path, depth + 1, value);
}

}  // namespace

std::vector<TreeLeaf> flatten_tree(const PythonValue& tree) {
  std::vector<TreeLeaf> leaves;
  add_leaves(tree, {}, &leaves);
  return leaves;
}

PythonValue make_tree(const std::vector<std::pair<StatePath, PythonValue>>& values) {
  const TreeMaker maker(values);
  PythonValue root = PythonDict{};
  for (const auto& [path, value] : values) {
    maker.put(root, path, 0, value);
  }
  return root;
}

}  // namespace fsdp2::ckpt
