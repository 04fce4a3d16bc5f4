// The key-value store that ranks meet at: the type alone, so that users of World see no transport.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
