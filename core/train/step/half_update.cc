#include "core/train/step/half_update.h"

#include <fmt/format.h>

#include <string>

#include "core/base/error.h"
#include "core/fsdp/tree.h"

namespace fsdp2::train {

void note_half_update(Optimizer& optimizer, int64_t step) {
  const std::string text = fmt::format("step {}", step);
  optimizer.root().tree().set_half_update(text);
  optimizer.set_half_update(text);
}

void check_not_half_updated(fsdp::Unit& root, const Optimizer* optimizer) {
  const std::string& of_values = root.tree().half_update();
  FSDP2_CHECK(of_values.empty(), Code::kWrongState,
              "the parameters are half updated, since {} failed amid its updates: load a "
              "checkpoint, which must have all of them",
              of_values);
  FSDP2_CHECK(optimizer == nullptr || optimizer->half_update().empty(), Code::kWrongState,
              "the optimizer's state is half updated, since {} failed amid its updates: load it "
              "from a checkpoint, too, or make a new optimizer",
              optimizer->half_update());
}

void forget_half_update(fsdp::Unit& root, Optimizer* optimizer) {
  root.tree().set_half_update("");
  if (optimizer != nullptr) {
    optimizer->set_half_update("");
  }
}

}  // namespace fsdp2::train
