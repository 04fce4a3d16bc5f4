// Names that come from files, made fit for a message: one line, printable, of bounded length.
#pragma once

#include <string>
#include <string_view>

namespace fsdp2::ckpt {

// The name itself; control characters and bytes that are no UTF-8 as '?', and cut with "..." after
// 200 bytes.
std::string printable_name(std::string_view name);

}  // namespace fsdp2::ckpt
