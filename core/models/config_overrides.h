// Fields of config.json that a caller changes, as transformers' from_pretrained(directory,
// key=value) does.
#pragma once

#include <string>

namespace fsdp2::models {

// config.json (its text) with the fields of `overrides`, the text of a JSON object, in place of its
// own. Objects are merged; null says that a field is to be null. Errors, kInvalidArgument: a text
// that is no JSON object; a field that config.json lacks and the model does not read, with the
// nearest; a value of another type than config.json's, unless that is null. What the model itself
// says of the changed text is build()'s.
std::string with_overrides(const std::string& config_json, const std::string& overrides);

}  // namespace fsdp2::models
