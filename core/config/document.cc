#include "core/config/document.h"

#include <algorithm>
#include <sstream>

#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr size_t kMostParts = 64;  // of a path

[[noreturn]] void refuse_assignment(const std::string& origin, const std::string& what) {
  throw ConfigError(origin + ": " + what);
}

std::vector<std::string> parts_of_path(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream stream(path + ".");  // so that "a." keeps its empty part
  for (std::string part; std::getline(stream, part, '.');) {
    parts.push_back(part);
  }
  return parts;
}

// The plain dialect takes - for _.
bool is_same_key(const std::string& a, const std::string& b) {
  const auto plain = [](char letter) { return letter == '-' ? '_' : letter; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&](char x, char y) { return plain(x) == plain(y); });
}

Node* entry_of(Node* map, const std::string& key, const std::string& origin) {
  if (map->kind == Node::Kind::kNull) {
    map->kind = Node::Kind::kMap;
  }
  if (map->kind != Node::Kind::kMap) {
    refuse_assignment(origin,
                      "there is " + map->described() + " before ." + key + ", from " + map->origin);
  }
  for (Node::Entry& entry : map->entries) {
    if (is_same_key(entry.first, key)) {
      return &entry.second;
    }
  }
  map->entries.emplace_back(key, Node());
  map->entries.back().second.origin = origin;
  return &map->entries.back().second;
}

void set_origin(Node* node, const std::string& origin) {
  node->origin = origin;
  for (Node& item : node->items) {
    set_origin(&item, origin);
  }
  for (Node::Entry& entry : node->entries) {
    set_origin(&entry.second, origin);
  }
}

// Ends with a whole letter of UTF-8.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) {
    return text;
  }
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end) + "...";
}

}  // namespace

const Node* Node::find(const std::string& key) const {
  for (const Entry& entry : entries) {
    if (entry.first == key) {
      return &entry.second;
    }
  }
  return nullptr;
}

Node Node::without(const std::vector<std::string>& keys) const {
  Node rest = *this;
  const auto is_left_out = [&](const Entry& entry) {
    return std::find(keys.begin(), keys.end(), entry.first) != keys.end();
  };
  rest.entries.erase(std::remove_if(rest.entries.begin(), rest.entries.end(), is_left_out),
                     rest.entries.end());
  return rest;
}

std::string Node::described() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kBool:
      return text;
    case Kind::kWhole:
      return "the whole number " + text;
    case Kind::kNumber:
      return "the number " + text;
    case Kind::kText:
      return "the text '" + shortened(text) + "'";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a mapping";
  }
  return "";
}

void set_in(Node* root, const std::string& assignment) {
  const std::string origin = "--set " + shortened(assignment);
  const size_t equals = assignment.find('=');
  const std::vector<std::string> path = parts_of_path(assignment.substr(0, equals));
  const bool has_gap = std::find(path.begin(), path.end(), "") != path.end();
  if (equals == std::string::npos || path.size() > kMostParts || has_gap) {
    refuse_assignment(origin, "expected KEY=VALUE");
  }
  Node value = read_yaml(assignment.substr(equals + 1), origin);
  set_origin(&value, origin);
  Node* place = root;
  for (const std::string& part : path) {
    place = entry_of(place, part, origin);
  }
  *place = std::move(value);
}

}  // namespace fsdp2::config
