#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <system_error>

#include "core/config/config_error.h"
#include "core/config/document.h"

namespace fsdp2::config {

namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostNodes = 1 << 16;
constexpr size_t kBytesPerNode = 64;  // a longer text counts as several nodes
constexpr size_t kMostDepth = 64;
constexpr char kMerge[] = "<<";

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw ConfigError(origin + ": " + what);
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

// YAML 1.2's core schema, in decimal, and without infinities and NaN.
Node::Kind kind_of_plain(const std::string& text) {
  static const std::regex whole("[-+]?[0-9]+");
  static const std::regex number(R"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)");
  constexpr size_t kLongestNumber = 64;
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) {
    return Node::Kind::kNull;
  }
  if (is_one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE"})) {
    return Node::Kind::kBool;
  }
  if (text.size() > kLongestNumber) {
    return Node::Kind::kText;
  }
  if (std::regex_match(text, whole)) {
    return Node::Kind::kWhole;
  }
  return std::regex_match(text, number) ? Node::Kind::kNumber : Node::Kind::kText;
}

// Builds the tree from the parser's events.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}

  // Nothing if the document was empty.
  std::optional<Node> take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(scalar(mark, Node::Kind::kNull, ""), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) {
      refuse(origin(mark), "this alias stands for something that contains it");
    }
    count(mark, known->second.second);
    add(known->second.first, YAML::NullAnchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool is_text = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!is_text && tag != "?" && !tag.empty()) {
      refuse(origin(mark), "the tag " + tag + " means nothing here");
    }
    add(scalar(mark, is_text ? Node::Kind::kText : kind_of_plain(value), value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, Node::Kind::kList, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, Node::Kind::kMap, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map that is not complete yet.
  struct Open {
    Node node;
    YAML::anchor_t anchor;
    size_t nodes_before;
    std::optional<std::string> key;           // of a map: the one whose value comes next
    std::map<std::string, std::string> keys;  // of a map: where each is
    std::vector<Node> merged;                 // of a map: others whose entries it takes
  };

  std::string origin(const YAML::Mark& mark) const {
    return name_ + ":" + std::to_string(mark.line + 1);
  }

  static size_t size_of(const std::string& text) { return 1 + text.size() / kBytesPerNode; }

  void count(const YAML::Mark& mark, size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMostNodes) {
      refuse(origin(mark), "more than " + std::to_string(kMostNodes) +
                               " values, counted with what aliases repeat, and long texts as "
                               "several");
    }
  }

  Node scalar(const YAML::Mark& mark, Node::Kind kind, const std::string& text) {
    count(mark, size_of(text));
    Node node;
    node.kind = kind;
    node.text = text;
    node.origin = origin(mark);
    return node;
  }

  void open(const YAML::Mark& mark, Node::Kind kind, YAML::anchor_t anchor) {
    if (open_.size() == kMostDepth) {
      refuse(origin(mark), "nested deeper than " + std::to_string(kMostDepth));
    }
    open_.push_back({scalar(mark, kind, ""), anchor, nodes_ - 1, {}, {}, {}});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    take_merged(&done);
    remember(done.anchor, done.node, nodes_ - done.nodes_before);
    place(std::move(done.node));
  }

  void add(Node node, YAML::anchor_t anchor) {
    remember(anchor, node, size_of(node.text));
    place(std::move(node));
  }

  void remember(YAML::anchor_t anchor, const Node& node, size_t nodes) {
    if (anchor == YAML::NullAnchor) {
      return;
    }
    remembered_ += nodes;
    if (remembered_ > kMostNodes) {
      refuse(node.origin, "anchors within anchors stand for more than " +
                              std::to_string(kMostNodes) + " values");
    }
    anchors_[anchor] = {node, nodes};
  }

  void place(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == Node::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      take_key(&parent, node);
    } else if (*parent.key == kMerge) {
      parent.key.reset();
      parent.merged = maps_in(std::move(node));
    } else {
      parent.node.entries.emplace_back(*std::exchange(parent.key, std::nullopt), std::move(node));
    }
  }

  void take_key(Open* map, const Node& key) {
    if (!key.is_scalar() || key.text.empty()) {
      refuse(key.origin, "expected a key, got " + key.described());
    }
    const auto [first, is_new] = map->keys.emplace(key.text, key.origin);
    if (!is_new) {
      refuse(key.origin, key.text + " is given twice; first at " + first->second);
    }
    map->key = key.text;
  }

  static std::vector<Node> maps_in(Node node) {
    std::vector<Node> maps;
    const std::string origin = node.origin;
    if (node.kind == Node::Kind::kList) {
      maps = std::move(node.items);
    } else {
      maps.push_back(std::move(node));
    }
    for (const Node& map : maps) {
      if (map.kind != Node::Kind::kMap) {
        refuse(origin, "<<: expected a mapping or a list of mappings, got " + map.described());
      }
    }
    return maps;
  }

  // Moves what its own entries leave open. The nodes have been counted as aliases.
  static void take_merged(Open* map) {
    for (Node& other : map->merged) {
      for (Node::Entry& entry : other.entries) {
        if (map->keys.emplace(entry.first, entry.second.origin).second) {
          map->node.entries.push_back(std::move(entry));
        }
      }
    }
  }

  const std::string name_;
  std::optional<Node> root_;
  std::vector<Open> open_;
  // By anchor: what it stands for, and of how many nodes that is.
  std::map<YAML::anchor_t, std::pair<Node, size_t>> anchors_;
  size_t nodes_ = 0;
  size_t remembered_ = 0;  // in anchors_
};

void check_encoding(const std::string& text, const std::string& name) {
  if (text.size() > kMostBytes) {
    refuse(name, "is larger than " + std::to_string(kMostBytes) + " bytes");
  }
  const size_t zero = text.find('\0');
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    refuse(name, "is not UTF-8");
  }
  if (zero != std::string::npos) {
    refuse(name, "has a zero byte, and is not YAML");
  }
}

Node parse(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Builder builder(name);
  if (!parser.HandleNextDocument(builder)) {
    return Node();
  }
  std::optional<Node> root = builder.take();
  Builder second(name);
  if (parser.HandleNextDocument(second)) {
    refuse(second.take().value_or(Node()).origin, "a second document; one is expected");
  }
  return root.value_or(Node());
}

}  // namespace

Node read_yaml(const std::string& text, const std::string& name) {
  check_encoding(text, name);
  try {
    return parse(text, name);
  } catch (const YAML::Exception& error) {
    refuse(name + ":" + std::to_string(error.mark.line + 1), error.msg);
  }
}

Node read_yaml_map(const std::string& text, const std::string& name) {
  Node root = read_yaml(text, name);
  if (root.kind == Node::Kind::kNull) {
    root.kind = Node::Kind::kMap;
    root.origin = name;
  }
  if (root.kind != Node::Kind::kMap) {
    refuse(root.origin, "expected a mapping of keys, got " + root.described());
  }
  return root;
}

Node read_yaml_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    refuse(path, "is a directory, expected a YAML file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    refuse(path, std::strerror(errno));
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    refuse(path, "cannot be read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return read_yaml_map(text, path);
}

}  // namespace fsdp2::config
