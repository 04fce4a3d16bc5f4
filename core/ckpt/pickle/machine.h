// Runs a pickle: a stack of nodes, marks in it, and a memo of nodes by number. Each operation
// checks what it takes; see pickle/reader.h for what is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/pickle/graph.h"

namespace fsdp2::ckpt {

class PickleMachine {
 public:
  using Id = PickleGraph::Id;
  using Kind = PickleGraph::Kind;

  PickleMachine(PickleGraph& graph, std::string_view bytes, PickleNames names,
                const std::string& file)
      : graph_(graph), bytes_(bytes), names_(names), file_(file) {}

  // The pickle's value. Once.
  Id run();

 private:
  using Node = PickleGraph::Node;

  // ---- errors ----

  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) {
      refuse(Code::kCorruptData, fmt::format(text, std::forward<Args>(args)...));
    }
  }

  [[noreturn]] void refuse(Code code, const std::string& why) const;

  // ---- input ----

  std::string_view take(uint64_t count);
  uint8_t take_byte() { return static_cast<uint8_t>(take(1)[0]); }
  uint64_t take_unsigned(size_t count);
  std::string_view take_line();

  double take_double();

  // ---- nodes ----

  // Counts the memory that values take, before they take it.
  void charge(size_t bytes);
  Id add(Node node);
  Id add_container(Kind kind, std::vector<Id> children);
  // How deep a container of these is nested.
  uint16_t depth_above(const std::vector<Id>& children) const;
  void put_into(Id container, const std::vector<Id>& values);
  Id add_text(Kind kind, std::string_view text);
  Id add_own_text(Kind kind, std::string text);
  Id add_integer(int64_t value);
  Id add_real(double value);
  // From the input, which says how many bytes it has.
  Id add_long();
  Id add_tensor(Kind kind, StoredTensor tensor);
  // What is not read, where other values are to be read all the same; else an error.
  Id add_unread(const std::string& why);
  std::vector<Id>& children(Id id) { return graph_.children_[graph_.nodes_[id].reference]; }
  StoredTensor& tensor(Id id) { return graph_.tensors_[graph_.nodes_[id].reference]; }
  Kind kind(Id id) const { return graph_.kind(id); }

  // Counts what is copied: the same argument may be used again and again.
  void spend(size_t count);

  // ---- stack ----

  void push(Id id) { stack_.push_back(id); }
  void push_text(uint64_t count);

  // Values below a mark belong to whoever set the mark.
  void check_values(size_t count) const;
  Id pop();
  Id top() const;
  std::vector<Id> pop_last(size_t count);
  std::vector<Id> pop_to_mark();

  // ---- operations ----

  void execute(uint8_t code);
  bool push_plain(uint8_t code);
  bool build_container(uint8_t code);
  bool use_memo(uint8_t code);
  void use_name(uint8_t code);
  void extend(Kind expected, const std::vector<Id>& values);

  void memoize(uint64_t number);
  void recall(uint64_t number);
  void push_name(std::string_view module, std::string_view name);
  Id other_name(const std::string& name);

  // ---- names as values (pickle_machine_names.cc) ----

  const std::vector<Id>& arguments_of(Id function, Id arguments);
  [[noreturn]] void refuse_arguments(std::string_view name) const;
  Id call(Id function, Id arguments);
  Id torch_size(const std::vector<Id>& values, std::string_view name);
  std::vector<Id> checked_integers(Id list, std::string_view name);
  Id collection(const std::vector<Id>& values, std::string_view name);
  Id typed_container(const std::vector<Id>& values, std::string_view name);
  Id encoded_bytes(const std::vector<Id>& values, std::string_view name);
  Id path(const std::vector<Id>& values, std::string_view name);
  Id plain_call(Id function, const std::vector<Id>& values);
  Id make_object(Id type, Id arguments);
  void make_object_with_keywords();
  void set_state(Id target, Id state);

  // ---- tensors (pickle_machine_names.cc) ----

  Id storage(Id id);
  Id rebuild_tensor(const std::vector<Id>& values, std::string_view name);
  void set_dtype(StoredTensor& result, Id id, std::string_view name) const;
  void check_no_lazy_bits(Id metadata) const;
  std::vector<int64_t> integers(Id list, std::string_view name);
  void check_view(const StoredTensor& view) const;
  Id parameter(const std::vector<Id>& values, std::string_view name);

  // ---- numbers of numpy (machine_numpy.cc) ----

  Id numpy_value(Id function, const std::vector<Id>& values);
  Id numpy_number(std::string_view code, std::string_view bytes);
  void set_numpy_order(Id dtype, Id state);

  // ---- tensors of classes (machine_dtensor.cc) ----

  Id typed_tensor(const std::vector<Id>& values, std::string_view name);
  Id dtensor(const std::vector<Id>& arguments, Id state);
  Id sharded_tensor(Id state);  // machine_sharded_tensor.cc
  Id fields_of(Id state) const;
  // The value under a text key; an error if there is none of that kind.
  Id field(Id dict, std::string_view name, Kind kind) const;
  const Id* find_field(Id dict, std::string_view name) const;
  Id state_of(Id object) const;
  std::vector<int64_t> mesh_shape(Id mesh) const;
  int64_t product_of(const std::vector<int64_t>& factors) const;
  std::vector<int64_t> whole_numbers(Id list) const;

  static constexpr Id kNoNode = ~Id{0};

  PickleGraph& graph_;
  const std::string_view bytes_;
  const PickleNames names_;
  const std::string& file_;
  size_t position_ = 0;
  size_t operation_ = 0;  // where the operation at hand begins
  size_t memory_ = 0;     // bytes of the graph
  size_t copied_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;
  std::map<std::string, Id> named_;
  Id none_ = 0;
  Id true_ = 0;
  Id false_ = 0;
  Id empty_tuple_ = 0;
};

}  // namespace fsdp2::ckpt
