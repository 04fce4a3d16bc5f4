// Numbers that a checkpoint holds, each as a plain value or as a tensor of one element.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/ckpt/state/state_source.h"

namespace fsdp2::train {

// nullopt for anything but a number. Errors: those of StateSource.
std::optional<double> number_of(const ckpt::PythonValue& value);
std::optional<double> read_number(const ckpt::StateSource& source, const ckpt::StateEntry& entry);

// nullopt as well if nothing has that name, and, for an integer, if it is none from 0 on.
std::optional<double> find_number(const ckpt::StateSource& source, const std::string& name);
std::optional<int64_t> find_integer(const ckpt::StateSource& source, const std::string& name);

}  // namespace fsdp2::train
