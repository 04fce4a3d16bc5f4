// How the calls of each function ended, to see what the fuzzer reaches.
#pragma once

#include <iosfwd>

#include "tests/capi/functions.h"

namespace fsdp2::fuzz {

void count_outcome(const abi_function& function, fsdp2_status status);

// A line for each function: its name, and how often each status came.
void print_outcomes(std::ostream& out);
// The functions that have never succeeded, in one line.
void print_never_succeeded(std::ostream& out);

}  // namespace fsdp2::fuzz
