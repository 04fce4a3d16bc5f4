// What this process, and the programs that it becomes or starts, may have of something.
#pragma once

namespace fsdp2::cli {

// What LibTorch maps before a program that is linked to it begins. With less address space its
// initialisers end the process by a signal, and nobody says why.
constexpr double kLeastAddressSpace = 420.0 * 1024 * 1024;

// The limits of a resource, RLIMIT_...; infinity: there is none.
double soft_limit(int resource);
double hard_limit(int resource);

}  // namespace fsdp2::cli
