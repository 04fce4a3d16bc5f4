#include "core/ckpt/pickle/graph.h"

#include "core/ckpt/pickle/machine.h"

namespace fsdp2::ckpt {

PickleGraph::PickleGraph(std::string_view bytes, PickleNames names, const std::string& file)
    : input_bytes_(bytes.size()) {
  root_ = PickleMachine(*this, bytes, names, file).run();
}

std::string PickleGraph::kind_name(Id id) const {
  switch (kind(id)) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kSet:
      return "a set";
    case Kind::kDict:
      return "a dict";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kName:
    case Kind::kUnread:
      return std::string(text(id));
    case Kind::kCall:
    case Kind::kObject:
      return std::string(text(children(id)[0]));
  }
  return "nothing";
}

bool PickleGraph::is_of(Id id, std::string_view name) const {
  return (kind(id) == Kind::kObject || kind(id) == Kind::kCall) && text(children(id)[0]) == name;
}

}  // namespace fsdp2::ckpt
