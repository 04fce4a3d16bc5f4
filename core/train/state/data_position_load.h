// How far a saved run had come in its data.
#pragma once

#include <optional>

#include "core/ckpt/state/state_source.h"
#include "core/train/data/data_loader.h"

namespace fsdp2::train {

// nullopt if the checkpoint does not say. `now`: the run's own, whose seed one of an earlier
// version is taken to have. Errors: those of StateSource.
std::optional<DataPosition> find_data_position(const ckpt::StateSource& source,
                                               const DataPosition& now);

// Whether both are places in the same windows in the same order.
bool is_of_same_data(const DataPosition& a, const DataPosition& b);

}  // namespace fsdp2::train
