// Questions about text that several folders ask.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp2 {

bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);

// Whether the dotted path `name` ("layers.0.mlp") lies below `parent` ("layers.0"). Everything lies
// below "", itself included.
bool is_inside(std::string_view name, std::string_view parent);

// "a, b, c", or "a, b, ..." if there are more than `most`.
std::string list_some(const std::vector<std::string>& names, size_t most);

// Where the first sequence begins that is not UTF-8 as Python takes it: shortest forms, no
// surrogates, up to U+10FFFF. nullopt if there is none.
std::optional<size_t> find_malformed_utf8(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace fsdp2
