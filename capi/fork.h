// Whether this process is a fork of one that has used the library.
#pragma once

namespace fsdp2::capi {

// From its first use in a process on, the library refuses to work in forks of that process: the
// threads of its transport and of LibTorch are not there.
void note_use();
bool in_fork();

}  // namespace fsdp2::capi
