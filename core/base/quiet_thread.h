// Starts threads that receive none of the process's signals: the host's handlers are for the host's
// own threads.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace fsdp2 {

// Throws std::system_error if no thread can be had, as std::thread does.
std::thread start_quiet_thread(std::function<void()> work);

// Runs the work on such a thread, which has so much stack, and waits for it. What it throws is
// thrown here. Error: kOutOfMemory if the system gives no such thread.
void run_on_deep_stack(size_t stack_bytes, const std::function<void()>& work);

}  // namespace fsdp2
