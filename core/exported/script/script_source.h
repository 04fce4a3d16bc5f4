// The source of a TorchScript file before LibTorch reads it.
#pragma once

#include <string>
#include <string_view>

namespace fsdp2::exported {

// LibTorch's lexer, parser and compiler call themselves for what lies inside something else, so
// that a source which is nested deeply enough ends the process. This refuses such a source, also
// for threads with a stack of 1 MiB; what torch.jit.save writes is far from it. script_calls.h is
// about functions that call one another.
//
// Returns a count of what is inside one another. title: of the source, for messages. Error:
// kUnsupported.
int check_nesting(std::string_view source, const std::string& title);

}  // namespace fsdp2::exported
