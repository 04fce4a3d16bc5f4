#include "core/train/state/saved_numbers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <vector>

namespace fsdp2::train {

namespace {

constexpr double kLargestInteger = 1LL << 53;  // that a double tells from the next

}  // namespace

std::optional<double> number_of(const ckpt::PythonValue& value) {
  if (const auto* number = value.as<double>()) {
    return *number;
  }
  const auto* integer = value.as<int64_t>();
  return integer != nullptr ? std::optional<double>(static_cast<double>(*integer)) : std::nullopt;
}

std::optional<double> read_number(const ckpt::StateSource& source, const ckpt::StateEntry& entry) {
  if (!entry.dtype) {
    return number_of(source.read_object(entry));
  }
  if (c10::multiply_integers(entry.shape) != 1) {
    return std::nullopt;
  }
  const at::Tensor tensor = at::empty(entry.shape, at::device(at::kCPU).dtype(entry.dtype));
  source.read(entry, std::vector<int64_t>(entry.shape.size(), 0), tensor);
  return tensor.item<double>();
}

std::optional<double> find_number(const ckpt::StateSource& source, const std::string& name) {
  const ckpt::StateEntry* entry = source.find(name);
  return entry == nullptr ? std::nullopt : read_number(source, *entry);
}

std::optional<int64_t> find_integer(const ckpt::StateSource& source, const std::string& name) {
  const auto found = find_number(source, name);
  const bool is_integer =
      found && *found >= 0 && *found <= kLargestInteger && std::floor(*found) == *found;
  return is_integer ? std::optional<int64_t>(static_cast<int64_t>(*found)) : std::nullopt;
}

}  // namespace fsdp2::train
