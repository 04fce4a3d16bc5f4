// Tensors of another library, by DLPack.
#pragma once

#include "tests/fuzz/abi/arguments.h"

namespace fsdp2::fuzz {

// One that the library may take over: lent until its deleter runs, or one of the library's own.
void* make_foreign_tensor(Source source, bool wrong);

// What whoever owns it does when done with it.
void delete_foreign_tensor(void* managed);

}  // namespace fsdp2::fuzz
