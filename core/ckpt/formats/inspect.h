// What a checkpoint of any format holds, as JSON:
//
//   {"path": ..., "format": "a DCP directory", "complete": true, "manifest": true,
//    "step": 100, "world_size": 4, "bytes": ...,                   null where nothing tells them
//    "tensors": [{"name": ..., "dtype": "float32", "shape": [..], "bytes": ...,
//                 "chunks": [{"offsets": [..], "sizes": [..], "bytes": ..., "file": ...,
//                             "checksum": "<16 hex digits>", ...}]}],
//    "objects": [{"name": ..., "value": "{'lr': 0.1}", "file": ..., "checksum": ...}]}
//
// A checksum is what a reader compares the chunk or object with: 16 hex digits of the checksums of
// its blocks in our manifest or in a safetensors header, else "crc32:<8 hex digits>" of the archive
// that it is in; null if there is nothing. Objects of a .pth file have none of their own. An object
// that is not read (it needs more than plain data, or is damaged) has "error" in place of "value".
// Values of tensors are not read.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// Errors: those of detect_format and of the format's reader; kIo if a save has replaced it
// meanwhile.
std::string inspect_checkpoint(const std::string& path);

// Reads all of it and compares every checksum there is. kCorruptData names file and item; kIo if a
// save has replaced it meanwhile.
void verify_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
