// Numbers of numpy, such as a learning rate that a schedule has computed with it. Its arrays are
// not read.
#include <cstring>

#include "core/ckpt/pickle/machine.h"
#include "core/ckpt/pickle/names.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

template <typename T>
T number_in(std::string_view bytes) {
  T number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

// dtype(code, ...), or scalar(dtype, bytes)
PickleMachine::Id PickleMachine::numpy_value(Id function, const std::vector<Id>& values) {
  const std::string_view name = graph_.text(function);
  if (name == kNumpyDtype) {
    if (values.empty() || kind(values[0]) != Kind::kText) {
      refuse_arguments(name);
    }
    return add_container(Kind::kCall, {function, values[0]});
  }
  if (values.size() != 2 || !graph_.is_of(values[0], kNumpyDtype) ||
      kind(values[1]) != Kind::kBytes) {
    refuse_arguments(name);
  }
  return numpy_number(graph_.text(children(values[0])[1]), graph_.text(values[1]));
}

PickleMachine::Id PickleMachine::numpy_number(std::string_view code, std::string_view bytes) {
  if (code == "f8" && bytes.size() == sizeof(double)) {
    return add_real(number_in<double>(bytes));
  }
  if (code == "f4" && bytes.size() == sizeof(float)) {
    return add_real(number_in<float>(bytes));
  }
  if (code == "i8" && bytes.size() == sizeof(int64_t)) {
    return add_integer(number_in<int64_t>(bytes));
  }
  if (code == "i4" && bytes.size() == sizeof(int32_t)) {
    return add_integer(number_in<int32_t>(bytes));
  }
  if (code == "b1" && bytes.size() == 1) {
    return bytes[0] != 0 ? true_ : false_;
  }
  return add_unread(fmt::format("a number of numpy's dtype {}", printable_name(std::string(code))));
}

// (version, order of bytes, ...)
void PickleMachine::set_numpy_order(Id dtype, Id state) {
  check(kind(state) == Kind::kTuple && graph_.children(state).size() > 1, "{} for numpy's dtype",
        graph_.kind_name(state));
  const Id order = graph_.children(state)[1];
  if (!graph_.is_text(order, "<") && !graph_.is_text(order, "|")) {
    const Id unread = add_unread("numbers of numpy's in another order of bytes");
    graph_.nodes_[dtype] = graph_.nodes_[unread];
  }
}

}  // namespace fsdp2::ckpt
