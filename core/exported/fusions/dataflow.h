// Who makes and who reads each value of a program.
#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

class Dataflow {
 public:
  // Both must outlive it.
  Dataflow(const Program& program, const std::vector<Operation>& operations);

  // The operator whose one result the value is; null for a value that is there before the program
  // runs, one of several results, a number, and kNoValue.
  const Operation* maker(ValueId value) const;
  // The same, or null if it is another operator than this one of aten: "mul.Tensor".
  const Operation* maker(ValueId value, std::string_view name) const;
  // Nodes; a node that reads the value twice is there twice.
  const std::vector<int32_t>& readers(ValueId value) const {
    return readers_[static_cast<size_t>(value)];
  }
  bool is_result(ValueId value) const { return is_result_[static_cast<size_t>(value)]; }

  const Operation& operation(int32_t node) const { return operations_[static_cast<size_t>(node)]; }
  int32_t node_of(const Operation& operation) const {
    return static_cast<int32_t>(&operation - operations_.data());
  }

 private:
  const std::vector<Operation>& operations_;
  std::vector<const Operation*> makers_;       // by value
  std::vector<std::vector<int32_t>> readers_;  // by value
  std::vector<bool> is_result_;                // by value: of the program
};

// The operator of aten: "mul.Tensor".
bool is_operator(const Operation& operation, std::string_view name);

// The tensor that input i of the schema is; kNoValue for None and for a number.
ValueId tensor_at(const Operation& operation, size_t i);
// The number, text or list that input i is known to be; null if the program computes it.
const c10::IValue* constant_at(const Operation& operation, size_t i);
bool is_int_at(const Operation& operation, size_t i, int64_t expected);
// The number that input i is known to be, also where the schema asks for a tensor.
std::optional<double> number_at(const Operation& operation, size_t i);
// Inputs 0 and 1 as they are, and the other way round.
std::array<std::pair<ValueId, ValueId>, 2> either_order(const Operation& operation);

}  // namespace fsdp2::exported
