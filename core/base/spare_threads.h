// Threads that a library below would wait for without end if the system did not give them.
#pragma once

namespace fsdp2 {

// Starts `count` threads, all there at once, and ends them. Error: kOutOfMemory, with errno as its
// native code, if the system does not give them (limits of the user, the container or the address
// space).
void check_spare_threads(int count);

}  // namespace fsdp2
