// A YAML file as a tree that knows the line of everything in it. Files are hostile: size, depth and
// the number of nodes, copies by aliases included, are limited, and whatever else is wrong is a
// ConfigError that names file and line.
//
// What is read: one document of YAML 1.2, with text as keys, and YAML 1.1's key <<, which puts the
// entries of another mapping, or of a list of them, where the mapping has no entry of its own; the
// first of a list goes before the others. A key that a mapping has twice is an error.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fsdp2::config {

class Node {
 public:
  enum class Kind { kNull, kBool, kWhole, kNumber, kText, kList, kMap };
  using Entry = std::pair<std::string, Node>;

  Kind kind = Kind::kNull;
  std::string text;            // of a scalar, as it is written
  std::vector<Node> items;     // of a list
  std::vector<Entry> entries;  // of a map, in the order of the file
  std::string origin;          // "run.yaml:12", or "--set lr=1"

  bool is_scalar() const { return kind != Kind::kList && kind != Kind::kMap; }
  // The entry of a map; null if there is none, or if this is no map.
  const Node* find(const std::string& key) const;

  // This map without these entries.
  Node without(const std::vector<std::string>& keys) const;

  // "the whole number 3", "a list": for messages.
  std::string described() const;
};

// `name` is what messages call the text.
Node read_yaml(const std::string& text, const std::string& name);
// As read_yaml, of a mapping; an empty text is an empty one.
Node read_yaml_map(const std::string& text, const std::string& name);
// As read_yaml_map.
Node read_yaml_file(const std::string& path);

// What "path.to.key=value", where the value is YAML, says: puts it into `root`, in place of what is
// there. Maps on the way that are missing are made.
void set_in(Node* root, const std::string& assignment);

}  // namespace fsdp2::config
