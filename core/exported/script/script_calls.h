// The sources of a TorchScript file together, before LibTorch compiles them.
//
// LibTorch compiles what a definition names before it goes on with the definition itself, and calls
// itself for that: a row of functions, each of which calls the next, takes as much stack as there
// are functions. This refuses such rows by a count that errs on the side of too many: a definition
// names all that its text names, comments and texts in quotes included, and a class is the sum of
// its methods.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace fsdp2::exported {

// The stack for a compiler of what check_calls takes.
inline constexpr size_t kScriptStackBytes = size_t{64} << 20;

// sources: by namespace, "__torch__.a.b". title: of the file, for messages. Error: kUnsupported,
// also for a namespace that is named for itself, through which a definition could be reached under
// another name, and for code outside of functions and classes.
void check_calls(const std::map<std::string, std::string>& sources, const std::string& title);

}  // namespace fsdp2::exported
