// Makes the arguments of calls, by role, type and name.
#pragma once

#include <memory>

#include "tests/fuzz/abi/call.h"
#include "tests/fuzz/abi/holdings.h"
#include "tests/fuzz/abi/random.h"

namespace fsdp2::fuzz {

// What the arguments are made from.
struct Source {
  Random& random;
  Holdings& holdings;
  int64_t timeout_ms;  // of meshes
};

// A call of `function`. Of `wrong` 0 all arguments make sense; otherwise about one in `wrong` does
// not.
std::unique_ptr<Call> make_call(const abi_function& function, Source source, size_t wrong);

}  // namespace fsdp2::fuzz
