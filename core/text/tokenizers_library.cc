#include "core/text/tokenizers_library.h"

#include <dlfcn.h>

#include <mutex>

#include "core/base/error.h"
#include "core/base/plugin_file.h"

namespace fsdp2::text {

namespace {

constexpr const char* kVariable = "FSDP2_TOKENIZERS_LIBRARY";
constexpr const char* kFile = "libfsdp2_tokenizers.so";

const fsdp2_tokenizers_api& open_library() {
  std::string problem;
  void* handle = open_plugin_file(kFile, kVariable, &problem);
  FSDP2_CHECK(handle != nullptr, Code::kUnsupported,
              "{} could not be opened ({}): plugins/tokenizers/build.sh DIR builds it with cargo; "
              "expected it beside libfsdp2.so or where {} says",
              kFile, problem, kVariable);
  auto* get = reinterpret_cast<fsdp2_tokenizers_get_function*>(dlsym(handle, FSDP2_TOKENIZERS_GET));
  FSDP2_CHECK(get != nullptr, Code::kUnsupported, "{} is not the tokenizers plug-in of libfsdp2",
              kFile);
  const fsdp2_tokenizers_api* api = get(FSDP2_TOKENIZERS_ABI);
  FSDP2_CHECK(api != nullptr && api->abi == FSDP2_TOKENIZERS_ABI, Code::kUnsupported,
              "{} is of another version than libfsdp2.so, which takes ABI {}: expected both from "
              "one source",
              kFile, FSDP2_TOKENIZERS_ABI);
  return *api;
}

}  // namespace

const fsdp2_tokenizers_api& tokenizers_library() {
  static std::mutex opening;
  static const fsdp2_tokenizers_api* api = nullptr;
  const std::lock_guard<std::mutex> lock(opening);
  if (api == nullptr) {
    api = &open_library();
  }
  return *api;
}

std::string taken(const fsdp2_tokenizers_text& text) {
  std::string copy(text.data, text.size);
  tokenizers_library().free_text(text);
  return copy;
}

}  // namespace fsdp2::text
