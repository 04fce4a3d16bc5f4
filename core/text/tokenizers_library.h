// libfsdp2_tokenizers.so, opened when it is first asked for; it stays open.
#pragma once

#include <string>

#include "core/text/tokenizers_abi.h"

namespace fsdp2::text {

// Errors: kUnsupported, with what is missing and how to build it.
const fsdp2_tokenizers_api& tokenizers_library();

// The text of the library's own memory, which is freed.
std::string taken(const fsdp2_tokenizers_text& text);

}  // namespace fsdp2::text
