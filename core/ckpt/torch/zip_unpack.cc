#include <libdeflate.h>

#include <memory>

#include "core/ckpt/torch/zip.h"

namespace fsdp2::ckpt {

bool zip_unpack(std::string_view packed, std::string& bytes) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> unpacker(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  size_t read = 0;
  return unpacker != nullptr &&
         libdeflate_deflate_decompress_ex(unpacker.get(), packed.data(), packed.size(),
                                          bytes.data(), bytes.size(), &read,
                                          nullptr) == LIBDEFLATE_SUCCESS &&
         read == packed.size();
}

}  // namespace fsdp2::ckpt
