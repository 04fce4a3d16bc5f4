// Windows of a flat sequence of tokens.
//
// With T tokens and sequence length S there are N = (T - 1) / S windows, rounded down; what remains
// is not used. Window w is the S + 1 tokens from w * S on: inputs are its first S tokens, labels
// its last S, so that neighbouring windows share one token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/train/data/window_source.h"

namespace fsdp2::train {

// N. kInvalidArgument if there is not even one window, with the numbers.
int64_t flat_window_count(const std::string& path, int64_t token_count, int64_t sequence_length);

// Copies `count` tokens from number `first` on.
using CopyTokens = std::function<void(int64_t first, int64_t count, int64_t* out)>;

// kInvalidArgument for a window outside [0, N).
TokenBatch flat_windows(const std::string& path, int64_t token_count,
                        const std::vector<int64_t>& windows, int64_t sequence_length,
                        const CopyTokens& copy_tokens);

}  // namespace fsdp2::train
