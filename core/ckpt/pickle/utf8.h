// Bytes as UTF-8 text, which is how protocol 2 of pickle holds them.
#pragma once

#include <string>
#include <string_view>

namespace fsdp2::ckpt {

// Text of the characters U+0000 to U+00FF, one for each byte.
std::string utf8_of_latin1(std::string_view bytes);
// The other way round; false if a character is beyond U+00FF. REQUIRES: is_utf8(text).
bool latin1_of_utf8(std::string_view text, std::string& bytes);

}  // namespace fsdp2::ckpt
