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
// A program of torch.export, with its parameters.
bool read_exported_program(const std::string& bytes);
bool read_model_config(const std::string& bytes);
// What a model directory's index says.
bool read_hugging_face_index(const std::string& bytes);
// A manifest, as it is and as the text behind a first line that fits it.
bool read_manifest(const std::string& bytes);
// Directories with a file of each of two ranks, one after the other: the first four bytes are the
// first one's length.
bool read_sharded_safetensors(const std::string& bytes);
bool read_per_rank_pth(const std::string& bytes);

// Records in JSON lines, whatever their rules are; accepted where no line is bad.
bool read_records(const std::string& bytes);

// A JPEG or PNG, up to the patches of a model.
bool read_image(const std::string& bytes);

// The configuration of a run, in YAML of any dialect. What makes a plan is printed and read again,
// and must make the same plan.
bool read_run_configuration(const std::string& bytes);

}  // namespace fsdp2::fuzz
