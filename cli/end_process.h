// How a program that has loaded LibTorch ends.
#pragma once

namespace fsdp2::cli {

// Ends the process once what it has printed is out (standard_streams.h), without the destructors of
// statics. LibTorch's take each of its operators out of its tables, for a tenth of a second and
// more.
[[noreturn]] void end_process(int exit_code);

}  // namespace fsdp2::cli
