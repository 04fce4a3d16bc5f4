// Values for numbers and texts, by the names of parameters and fields: those that make sense, and
// those that no function should take. An unknown name ends the program, so that a function whose
// arguments nobody has thought about is not fuzzed with nonsense alone.
#pragma once

#include <string>
#include <vector>

#include "tests/capi/functions.h"
#include "tests/fuzz/abi/random.h"

namespace fsdp2::fuzz {

// A number as its type has it.
abi_argument number_as(const std::string& type, double value);
std::string text_of_number(const abi_variable& variable, const abi_argument& number);
// Writes it where a field of that type lies.
void write_number(const std::string& type, double value, void* to);

double good_number(const std::string& name, Random& random);
abi_argument bad_number(const std::string& type, Random& random);
// Counts of arrays are made with the array.
bool is_count(const abi_variable& variable);

// What good_text draws from; nullptr for an unknown name. owner: the function or struct that the
// text is for, since "name" is a name of many things.
const std::vector<std::string>* texts_of(const std::string& owner, const std::string& name);
std::string good_text(const std::string& owner, const std::string& name, Random& random);
std::string bad_text(Random& random);

// Names what has no values; empty if all is well.
std::string find_unknown_variable();

}  // namespace fsdp2::fuzz
