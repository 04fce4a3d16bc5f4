#include "core/train/state/data_position_load.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "core/train/state/saved_numbers.h"
#include "core/train/state/training_state_parts.h"

namespace fsdp2::train {

std::optional<DataPosition> find_data_position(const ckpt::StateSource& source,
                                               const DataPosition& now) {
  const auto field = [&](const char* name) {
    return find_integer(source, fmt::format("{}.data.{}", kOwn, name));
  };
  const auto epoch = field("epoch");
  const auto window = field("window");
  const auto count = field("window_count");
  const auto length = field("sequence_length");
  const auto steps = field("steps");
  if (!epoch || !window || !count || !length || !steps) {
    return std::nullopt;
  }
  DataPosition position{*epoch, *window, *count, *length};
  position.steps = *steps;
  const ckpt::StateEntry* order = source.find(fmt::format("{}.data.own_order", kOwn));
  if (order != nullptr && !order->dtype) {
    const ckpt::PythonValue value = source.read_object(*order);
    const std::string* text = value.as<std::string>();
    position.own_order = text == nullptr ? "" : *text;
  }
  const ckpt::StateEntry* seed = source.find(fmt::format("{}.data.shuffle_seed", kOwn));
  if (seed == nullptr || seed->dtype) {
    position.shuffle_seed = now.shuffle_seed;  // of an earlier version
    return position;
  }
  const ckpt::PythonValue value = source.read_object(*seed);
  if (const int64_t* number = value.as<int64_t>()) {
    position.shuffle_seed = static_cast<uint64_t>(*number);
  }
  return position;
}

bool is_of_same_data(const DataPosition& a, const DataPosition& b) {
  return a.window_count == b.window_count && a.sequence_length == b.sequence_length &&
         a.shuffle_seed == b.shuffle_seed && a.own_order == b.own_order;
}

}  // namespace fsdp2::train
