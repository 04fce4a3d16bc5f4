// The key-value store at which ranks meet: its type alone, so that users of World see no transport.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
