// One call that is about to be made: its arguments, the memory that they point to, and its text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/capi/functions.h"

namespace fsdp2::fuzz {

// Room behind every pointer that a call may write through, which is more than any call may use.
constexpr size_t kRoom = 1 << 15;
constexpr unsigned char kUntouched = 0xa5;
// More elements than an array may have, so that a call refuses the number and not the memory.
constexpr size_t kTooMany = (size_t{1} << 31) + 1;
// Elements of every array that a call may read.
constexpr size_t kElements = 32;

struct Output {
  int parameter;
  unsigned char* memory;
  std::vector<unsigned char> before;
};

struct Call {
  explicit Call(const abi_function& of) : function(&of), arguments(of.n_parameters) {}

  const abi_function* function;
  std::vector<abi_argument> arguments;
  std::vector<Output> outputs;
  std::string text;             // "fsdp2_mesh_barrier(0x100...)"
  void* lent = nullptr;         // user_data with a release function, or a tensor's memory
  bool touched_record = false;  // a callback inside it has made a call that failed

  // Zeros that live as long as the call.
  unsigned char* memory(size_t bytes) {
    memory_.push_back(std::make_unique<unsigned char[]>(bytes));
    return memory_.back().get();
  }
  template <typename T>
  T* array(const std::vector<T>& values) {
    T* copy = reinterpret_cast<T*>(memory(sizeof(T) * std::max(values.size(), kElements)));
    std::copy(values.begin(), values.end(), copy);
    return copy;
  }
  const char* keep(std::string value) {
    texts_.push_back(std::make_unique<std::string>(std::move(value)));
    return texts_.back()->c_str();
  }

 private:
  std::vector<std::unique_ptr<unsigned char[]>> memory_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

}  // namespace fsdp2::fuzz
