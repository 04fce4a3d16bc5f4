// A thread that takes none of the process's signals: the host's handlers are for its own threads.
#pragma once

#include <functional>
#include <thread>

namespace fsdp2 {

// Throws std::system_error if there is no thread to be had, as std::thread does.
std::thread start_quiet_thread(std::function<void()> work);

}  // namespace fsdp2
