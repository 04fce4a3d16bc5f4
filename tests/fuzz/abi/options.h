// Structs that the caller fills.
#pragma once

#include "tests/fuzz/abi/arguments.h"

namespace fsdp2::fuzz {

// One of `parameter`'s type, and in `text` what it has that is not the default.
unsigned char* make_options(Call& call, const abi_variable& parameter, Source source, bool wrong,
                            std::string& text);

// A number of texts, some of which may make no sense.
const char** make_texts(Call& call, const std::string& owner, const std::string& name, size_t count,
                        Random& random, bool wrong);

// A function of the type for the library to call; see callbacks.cc.
const abi_callback& callback_of(const std::string& type);

}  // namespace fsdp2::fuzz
