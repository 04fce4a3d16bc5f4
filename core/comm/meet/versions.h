// What the ranks of a job must run alike: the bytes that they send each other are made for readers
// of the same version.
#pragma once

#include <string>

namespace fsdp2 {

// "libfsdp2 0.1.0 with LibTorch 2.11.0": nothing that may differ between the machines of a job, as
// what a build was made for.
std::string own_versions();

}  // namespace fsdp2
