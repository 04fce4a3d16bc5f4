// Files of plug-ins: libraries that libfsdp2.so opens when they are asked for.
#pragma once

#include <string>

namespace fsdp2 {

// The directory of the library that something is in, with a slash behind it; "" if that is unknown.
std::string directory_of(const void* address);

// Opens the file that the environment's `variable` names, or the one of this name beside
// libfsdp2.so, or the one that the loader finds. Returns dlopen's handle, which stays open, or null
// and in *problem what keeps the file from being loaded.
void* open_plugin_file(const char* file, const char* variable, std::string* problem);

}  // namespace fsdp2
