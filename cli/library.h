// libfsdp2's C ABI in C++, by the names that the commands have for it.
#pragma once

#include "client/library.h"

namespace fsdp2::cli {

using client::check;
using client::Failure;
using client::info_of;
using client::Loader;
using client::Mesh;
using client::Module;
using client::Optimizer;
using client::Owned;
using client::Shard;
using client::Step;
using client::Tensor;
using client::text_of;
using client::Tokenizer;

}  // namespace fsdp2::cli
