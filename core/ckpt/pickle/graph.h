// What a pickle builds, as it builds it: nodes that refer to one another, one for each value, with
// text left where it is in the pickle. Takes little memory for each value; pickle/reader.h turns it
// into a PythonValue, dcp/metadata.h reads it as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

class PickleGraph {
 public:
  using Id = uint32_t;

  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kList,
    kTuple,
    kSet,
    kDict,     // children: key, value, key, value ...
    kStorage,  // what a tensor is rebuilt from
    kTensor,
    kName,    // text: the name
    kCall,    // children: name, arguments ...
    kObject,  // children: name, then the state if there is one
    kUnread,  // text: why it was not read
  };

  // Executes the pickle. `bytes` must outlive the graph.
  PickleGraph(std::string_view bytes, PickleNames names, const std::string& file);

  Id root() const { return root_; }
  Kind kind(Id id) const { return nodes_[id].kind; }
  bool boolean(Id id) const { return nodes_[id].number != 0; }
  int64_t integer(Id id) const { return nodes_[id].number; }
  double real(Id id) const { return nodes_[id].real; }
  // For kText, kBytes, kName, kUnread.
  std::string_view text(Id id) const { return {nodes_[id].text, nodes_[id].size}; }
  // For kList, kTuple, kSet, kDict, kCall, kObject.
  const std::vector<Id>& children(Id id) const { return children_[nodes_[id].reference]; }
  const StoredTensor& tensor(Id id) const { return tensors_[nodes_[id].reference]; }
  size_t input_bytes() const { return input_bytes_; }

  // For messages: "an int", "a dict", "torch.Size".
  std::string kind_name(Id id) const;
  bool is_text(Id id, std::string_view expected) const {
    return kind(id) == Kind::kText && text(id) == expected;
  }
  // Whether it is an object of this class, or a call of this name.
  bool is_of(Id id, std::string_view name) const;

 private:
  friend class PickleMachine;

  struct Node {
    Kind kind;
    uint16_t depth;  // how many containers lie in one another below it
    uint32_t size;   // of text
    union {
      int64_t number;
      double real;
      const char* text;
      size_t reference;  // into children_, tensors_
    };
  };

  size_t input_bytes_ = 0;
  std::vector<Node> nodes_;
  std::deque<std::vector<Id>> children_;  // they stay where they are when others are added
  std::deque<StoredTensor> tensors_;      // of kStorage too: dtype, key and size alone
  std::deque<std::string> texts_;         // those that the pickle does not hold as they are
  Id root_ = 0;
};

}  // namespace fsdp2::ckpt
