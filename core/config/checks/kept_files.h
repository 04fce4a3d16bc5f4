// What a run reads, and must not write over.
#pragma once

#include <string>

#include "core/config/train_options.h"

namespace fsdp2::config {

// Throws ConfigError where an output would be written over a file that the run reads: its data, the
// files of its model and tokenizer, the checkpoint that it goes on from, and `configuration`, the
// YAML file that it was given ("": none). Full weights may take the place of those that the run
// began with. Outputs that are directories appear under new names, and replace nothing.
void check_read_files_are_kept(const TrainOptions& options, const std::string& configuration);

// Whether `path` is one of a tokenizer's files, which lie in the directory `tokenizer` or beside
// the file `tokenizer`.
bool is_file_of_tokenizer(const std::string& path, const std::string& tokenizer);

}  // namespace fsdp2::config
