// Which tensors a program changes in place, found by what the operators' schemas say of their
// arguments and results.
#pragma once

#include <vector>

#include "core/exported/module_calls.h"
#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

struct Write {
  const Operation* operation;
  ValueId tensor;  // the one whose memory it is: views stand for what they are views of
};

std::vector<Write> find_writes(const Program& program, const std::vector<Operation>& operations);

// By value: whether its memory, or that of which it is a view, is among what they change.
std::vector<bool> written_values(const Program& program, const std::vector<Operation>& operations);

// Error: kUnsupported for a parameter that is changed: only optimizers change them.
void check_writes(const Program& program, const std::vector<Write>& writes);

// By call: the first write that changes what was there before the call, or null. Such a call cannot
// run twice.
std::vector<const Write*> find_outside_writes(const Program& program,
                                              const std::vector<ModuleCall>& calls,
                                              const std::vector<Write>& writes);

}  // namespace fsdp2::exported
