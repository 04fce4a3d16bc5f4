// What a checkpoint of any format holds, as JSON:
//
//   {"path": ..., "format": "a DCP directory", "complete": true, "manifest": true, "bytes": ...,
//    "tensors": [{"name": ..., "dtype": "float32", "shape": [..], "bytes": ...,
//                 "chunks": [{"offsets": [..], "sizes": [..], "bytes": ..., "file": ...,
//                             "checksum": "<16 hex digits>" or null}]}],
//    "objects": [{"name": ..., "value": "{'lr': 0.1}", "file": ..., "checksum": ...}]}
//
// A checksum is that of the item's block checksums in our manifest; formats without have none.
// Values of tensors are not read.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// Errors: those of detect_format and of the format's reader.
std::string inspect_checkpoint(const std::string& path);

// Reads all of it and compares every checksum there is. kCorruptData names file and item.
void verify_checkpoint(const std::string& path);

// The path of the checkpoint to go on from: `path` itself, or the newest complete one in it if it
// is a directory of a series. kNotFound if there is none.
std::string find_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
