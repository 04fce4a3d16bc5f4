// A directory's content once more, without its bytes.
#pragma once

#include <functional>
#include <string>

namespace fsdp2::ckpt {

// Puts what is in `from` into the directory `to`, without the files directly in it whose names
// `keeps` turns down: directories and symbolic links anew, files as further names of the same ones,
// or copied and synced where the file system has no hard links. `to` gets the mode of `from`.
// Errors: kIo with the path.
void link_copy(const std::string& from, const std::string& to,
               const std::function<bool(const std::string& name)>& keeps);

}  // namespace fsdp2::ckpt
