// Questions about directories, for every folder of core.
#pragma once

#include <string>
#include <vector>

namespace fsdp2 {

// The names in a directory, sorted. kNotFound, kIo.
std::vector<std::string> names_in(const std::string& directory);

// Whether anything has this path, a symbolic link to nothing included.
bool path_exists(const std::string& path);
// Whether anything is there once symbolic links are followed.
bool target_exists(const std::string& path);

// "out/step-1" of "out/step-1//", "." of "".
std::string without_slashes(std::string path);
// "out" of "out/step-1", "." of "step-1".
std::string parent_of(const std::string& path);
// "step-1" of "out/step-1".
std::string last_name_of(const std::string& path);

}  // namespace fsdp2
