#include "core/ckpt/state_tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/ckpt/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// Whether a list is entered, as Python's flattening does: if there is a tensor or a dict in it.
bool is_entered(const PickleValue& value) {
  const PickleList* list = value.as<PickleList>();
  return list != nullptr &&
         std::any_of(list->items.begin(), list->items.end(), [](const PickleValue& item) {
           return item.as<PickleTensor>() != nullptr || item.as<PickleDict>() != nullptr ||
                  is_entered(item);
         });
}

std::optional<DcpPathPart> path_part(const PickleValue& key) {
  if (const auto* text = key.as<std::string>()) {
    return *text;
  }
  if (const int64_t* number = key.as<int64_t>()) {
    return *number;
  }
  return std::nullopt;
}

StatePath below(StatePath path, DcpPathPart part) {
  path.push_back(std::move(part));
  return path;
}

void add_leaves(const PickleValue& value, const StatePath& path, const std::string& label,
                std::vector<TreeLeaf>* leaves) {
  if (const auto* dict = value.as<PickleDict>()) {
    for (const PickleItem& item : dict->items) {
      const auto part = path_part(item.key);
      FSDP2_CHECK(part.has_value(), Code::kUnsupported,
                  "{}: {} has a key that is neither text nor a number", label,
                  printable_name(name_of(path)));
      add_leaves(item.value, below(path, *part), label, leaves);
    }
  } else if (is_entered(value)) {
    const auto& items = value.as<PickleList>()->items;
    for (size_t i = 0; i < items.size(); ++i) {
      add_leaves(items[i], below(path, static_cast<int64_t>(i)), label, leaves);
    }
  } else {
    leaves->push_back({path, &value});
  }
}

// Puts values where their paths lead.
class TreeMaker {
 public:
  explicit TreeMaker(const std::vector<std::pair<StatePath, PickleValue>>& values) {
    for (const auto& [path, value] : values) {
      for (size_t depth = 0; depth < path.size(); ++depth) {
        children_[prefix(path, depth)].insert(path[depth]);
      }
    }
  }

  void put(PickleValue& node, const StatePath& path, size_t depth, const PickleValue& value) const;

 private:
  static StatePath prefix(const StatePath& path, size_t depth) {
    return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth)};
  }
  PickleValue make_container(const StatePath& path) const;

  std::map<StatePath, std::set<DcpPathPart>> children_;
};

// A list if its items are numbered from 0 on without a gap. They may come in any order: a
// checkpoint lists tensors before values, or rank by rank.
PickleValue TreeMaker::make_container(const StatePath& path) const {
  const std::set<DcpPathPart>& children = children_.at(path);
  const auto count = static_cast<int64_t>(children.size());
  if (*children.begin() == DcpPathPart(int64_t{0}) &&
      *children.rbegin() == DcpPathPart(count - 1)) {
    return PickleList{std::vector<PickleValue>(children.size())};
  }
  return PickleDict{};
}

void TreeMaker::put(PickleValue& node, const StatePath& path, size_t depth,
                    const PickleValue& value) const {
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
  auto* list = node.as<PickleList>();
  if (list != nullptr && number != nullptr && static_cast<size_t>(*number) < list->items.size()) {
    put(list->items[static_cast<size_t>(*number)], path, depth + 1, value);
    return;
  }
  auto* dict = node.as<PickleDict>();
  FSDP2_CHECK(dict != nullptr, Code::kInvalidArgument, "{} lies inside another value",
              printable_name(name_of(path)));
  const PickleValue key =
      number != nullptr ? PickleValue(*number) : PickleValue(std::get<std::string>(path[depth]));
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

std::vector<TreeLeaf> flatten_tree(const PickleValue& tree, const std::string& label) {
  std::vector<TreeLeaf> leaves;
  add_leaves(tree, {}, label, &leaves);
  return leaves;
}

PickleValue make_tree(const std::vector<std::pair<StatePath, PickleValue>>& values) {
  const TreeMaker maker(values);
  PickleValue root = PickleDict{};
  for (const auto& [path, value] : values) {
    maker.put(root, path, 0, value);
  }
  return root;
}

}  // namespace fsdp2::ckpt
