// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {"total_size": 610304},                                   not read
//    "weight_map": {"model.norm.weight": "model-00003-of-00003.safetensors", ...}}
#pragma once

#include <map>
#include <string>

namespace fsdp2::ckpt {

// Tensor name -> file name, relative to the index, checked not to leave its directory. kCorruptData
// for anything that is not such an index; `file` is for messages.
std::map<std::string, std::string> parse_hugging_face_index(const std::string& text,
                                                            const std::string& file);

}  // namespace fsdp2::ckpt
