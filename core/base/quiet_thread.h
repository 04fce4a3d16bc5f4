// Starts threads that receive none of the process's signals: the host's handlers are for the host's
// own threads.
#pragma once

#include <functional>
#include <thread>

namespace fsdp2 {

// Throws std::system_error if no thread can be had, as std::thread does.
std::thread start_quiet_thread(std::function<void()> work);

}  // namespace fsdp2
