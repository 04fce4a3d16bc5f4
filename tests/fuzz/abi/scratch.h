// An empty directory to work in: whatever path a call has lies there.
#pragma once

namespace fsdp2::fuzz {

// Makes it, in memory if possible, and goes there. It goes with std::exit and std::quick_exit.
void enter_scratch();

}  // namespace fsdp2::fuzz
