// What a misspelt word was meant to be.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::config {

// The candidate that `word` most likely stands for, or "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace fsdp2::config
