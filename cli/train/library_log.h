// The library's own messages, as `fsdp2 train` shows them.
#pragma once

namespace fsdp2::cli {

// Shows warnings and errors, as the library does by itself, and how far long saves and loads are.
void show_library_log();

}  // namespace fsdp2::cli
