// How much memory a module takes on this rank.
#pragma once

#include <cstddef>

#include "core/nn/module.h"

namespace fsdp2::fsdp {

// Bytes of its parameters, sharded or not, of their gradients, reduced or not, and of its buffers,
// as far as they are allocated now: shards with their padding, and what is gathered. Memory that
// several of them share counts once. Allocates nothing.
size_t held_bytes(const nn::Module& module);

}  // namespace fsdp2::fsdp
