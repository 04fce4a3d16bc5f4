// What a misspelt word was meant to be.
#pragma once

#include <string>
#include <vector>

namespace fsdp2 {

// The candidate that `word`, which may begin with dashes, is a part of, or that is a few letters
// away. "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace fsdp2
