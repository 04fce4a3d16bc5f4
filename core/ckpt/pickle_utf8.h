// UTF-8, as Python takes it: shortest forms, no surrogates, up to U+10FFFF.
#pragma once

#include <string>
#include <string_view>

namespace fsdp2::ckpt {

bool is_utf8(std::string_view text);

// Bytes as text of the characters U+0000 to U+00FF, which is how protocol 2 holds bytes.
std::string utf8_of_latin1(std::string_view bytes);
// The other way round; false if a character is beyond U+00FF. REQUIRES: is_utf8(text).
bool latin1_of_utf8(std::string_view text, std::string& bytes);

}  // namespace fsdp2::ckpt
