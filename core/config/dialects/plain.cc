#include <algorithm>

#include "core/config/dialects/dialects.h"
#include "core/config/key_table.h"

namespace fsdp2::config {

namespace {

// A map whose keys are spelt with _.
Node with_underscores(const Node& map, const std::string& prefix) {
  Node copy = map;
  copy.entries.clear();
  for (const Node::Entry& entry : map.entries) {
    std::string key = entry.first;
    std::replace(key.begin(), key.end(), '-', '_');
    const Node* same = copy.find(key);
    if (same != nullptr) {
      Value{entry.second, prefix + entry.first}.refuse("is given twice; first at " + same->origin);
    }
    copy.entries.emplace_back(key, entry.second);
  }
  return copy;
}

}  // namespace

std::vector<Row> plain_rows() {
  std::vector<Row> rows;
  TrainOptions options;
  for (const Key& key : train_keys(&options)) {
    std::string path = key.name;
    std::replace(path.begin(), path.end(), '-', '_');
    rows.push_back(sets(path, key.name));
  }
  return rows;
}

void apply_plain(const Node& root, const std::string& prefix, Plan* plan) {
  apply(plain_rows(), with_underscores(root, prefix), prefix, plan);
}

}  // namespace fsdp2::config
