#include "core/ckpt/pickle/reader.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/pickle/graph.h"
#include "core/ckpt/pickle/names.h"

namespace fsdp2::ckpt {

namespace {

using Id = PickleGraph::Id;
using Kind = PickleGraph::Kind;

// What a file may describe whatever its size, and for each of its bytes: ordinary files use a value
// in several places now and then (a tuple of betas), never thousands of times.
constexpr size_t kFreeCost = size_t{1} << 26;
constexpr size_t kCostForEachByte = 64;
constexpr size_t kCostOfValue = sizeof(PythonItem);

// Copies nodes into a tree. Nodes that several places use become as many values.
class TreeBuilder {
 public:
  TreeBuilder(const PickleGraph& graph, const std::string& file)
      : graph_(graph),
        file_(file),
        budget_(kFreeCost + kCostForEachByte * std::min(graph.input_bytes(), kMaxPickleBytes)) {}

  PythonValue value(Id id, size_t depth) {
    check_depth(depth);
    spend(kCostOfValue);
    switch (graph_.kind(id)) {
      case Kind::kNone:
        return {};
      case Kind::kBool:
        return graph_.boolean(id);
      case Kind::kInt:
        return graph_.integer(id);
      case Kind::kFloat:
        return graph_.real(id);
      case Kind::kText:
        return text(id);
      case Kind::kBytes:
        return PythonBytes{text(id)};
      case Kind::kList:
        return PythonList{items(id, 0, depth)};
      case Kind::kTuple:
        return PythonTuple{items(id, 0, depth)};
      case Kind::kSet:
        return set(id, depth);
      case Kind::kDict:
        return dict(id, depth);
      case Kind::kTensor:
        return tensor(id);
      case Kind::kName:
        return PythonObject{text(id), PythonObject::Form::kName, {}, {}};
      case Kind::kUnread:
        return PythonObject{text(id), PythonObject::Form::kUnread, {}, {}};
      case Kind::kCall:
      case Kind::kObject:
        return object(id, depth);
      case Kind::kStorage:
        break;
    }
    fail(Code::kUnsupported, "{}: its pickle holds a storage that is no tensor", file_);
  }

 private:
  void check_depth(size_t depth) const {
    FSDP2_CHECK(depth <= kMaxPickleDepth, Code::kCorruptData,
                "{}: its pickle holds values nested more than {} deep, or inside themselves", file_,
                kMaxPickleDepth);
  }

  void spend(size_t cost) {
    FSDP2_CHECK(cost <= budget_, Code::kCorruptData,
                "{}: its pickle of {} bytes uses the same values over and over, to a size that is "
                "not plausible",
                file_, graph_.input_bytes());
    budget_ -= cost;
  }

  std::string text(Id id) {
    spend(graph_.text(id).size());
    return std::string(graph_.text(id));
  }

  PythonObject object(Id id, size_t depth) {
    std::string name = graph_.kind_name(id);
    if (is_part_of_value(name)) {
      return {"its pickle holds " + name + ", which is no value by itself",
              PythonObject::Form::kUnread,
              {},
              {}};
    }
    std::vector<PythonValue> values = items(id, 1, depth);
    return graph_.kind(id) == Kind::kCall
               ? PythonObject{std::move(name), PythonObject::Form::kCall, std::move(values), {}}
               : PythonObject{std::move(name), PythonObject::Form::kNew, {}, std::move(values)};
  }

  StoredTensor tensor(Id id) {
    const StoredTensor& found = graph_.tensor(id);
    spend(2 * sizeof(int64_t) * found.shape.size());
    return found;
  }

  std::vector<PythonValue> items(Id id, size_t first, size_t depth) {
    std::vector<PythonValue> values;
    const std::vector<Id>& children = graph_.children(id);
    spend(kCostOfValue * children.size());
    values.reserve(children.size() - first);
    for (size_t i = first; i < children.size(); ++i) {
      values.push_back(value(children[i], depth + 1));
    }
    return values;
  }

  PythonSet set(Id id, size_t depth) {
    PythonSet set;
    std::unordered_map<std::string, size_t> places;
    for (const Id child : graph_.children(id)) {
      if (places.emplace(key_text(child, depth + 1), set.items.size()).second) {
        set.items.push_back(value(child, depth + 1));
      }
    }
    return set;
  }

  // As Python: the place of a key's first use, the value of its last.
  PythonDict dict(Id id, size_t depth) {
    PythonDict dict;
    std::unordered_map<std::string, size_t> places;
    const std::vector<Id>& children = graph_.children(id);
    for (size_t i = 0; i + 1 < children.size(); i += 2) {
      const auto [place, is_new] =
          places.emplace(key_text(children[i], depth + 1), dict.items.size());
      if (is_new) {
        dict.items.push_back({value(children[i], depth + 1), {}});
      }
      dict.items[place->second].value = value(children[i + 1], depth + 1);
    }
    return dict;
  }

  // A text that is the same for the same key and no other.
  std::string key_text(Id id, size_t depth) {
    check_depth(depth);
    spend(kCostOfValue);
    switch (graph_.kind(id)) {
      case Kind::kNone:
        return "n";
      case Kind::kBool:
      case Kind::kInt:
        return fmt::format("i{}", graph_.kind(id) == Kind::kInt ? graph_.integer(id)
                                                                : int64_t{graph_.boolean(id)});
      case Kind::kFloat:
        return fmt::format("f{}", graph_.real(id));
      case Kind::kText:
      case Kind::kBytes:
      case Kind::kName:
      case Kind::kUnread:
        return fmt::format("{}{}:{}", static_cast<int>(graph_.kind(id)), graph_.text(id).size(),
                           text(id));
      case Kind::kTuple: {
        std::string joined = fmt::format("t{}:", graph_.children(id).size());
        for (const Id child : graph_.children(id)) {
          joined += key_text(child, depth + 1);
          joined += ',';
          spend(joined.size());
        }
        return joined;
      }
      default:
        fail(Code::kCorruptData, "{}: its pickle has {} as a key", file_, graph_.kind_name(id));
    }
  }

  const PickleGraph& graph_;
  const std::string& file_;
  size_t budget_;
};

}  // namespace

PythonValue read_pickle(std::string_view bytes, PickleNames names, const std::string& file) {
  const PickleGraph graph(bytes, names, file);
  return TreeBuilder(graph, file).value(graph.root(), 0);
}

}  // namespace fsdp2::ckpt
