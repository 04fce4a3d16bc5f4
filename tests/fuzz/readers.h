// Every reader of files, as a function of bytes: for tests that change bytes, and for fuzzers
// (fuzz_target.cc).
//
// Each reads all that there is to read, returns whether the bytes were accepted, and lets nothing
// through but what a caller of libfsdp2 may meet: an Error of one line that blames the file. Any
// other exception passes, and is a bug.
#pragma once

#include <string>

namespace fsdp2::fuzz {

bool read_pickle_of_torch_save(const std::string& bytes);
bool read_dcp_metadata(const std::string& bytes);
// A directory of two files one after the other: .metadata, and from the first zip entry on the data
// file __0_0.distcp.
bool read_dcp_directory(const std::string& bytes);
bool read_torch_archive(const std::string& bytes);
bool read_safetensors(const std::string& bytes);
bool read_model_config(const std::string& bytes);

}  // namespace fsdp2::fuzz
