#include "core/ckpt/bytes/manifest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <nlohmann/json.hpp>

#include "core/ckpt/bytes/checksum.h"
#include "tests/support/few_allocations.h"

namespace fsdp2::ckpt {
namespace {

Manifest sample() {
  Manifest manifest;
  manifest.files[".metadata"] = {4711, 0x123456789abcdef0};
  manifest.files["__0_0.distcp"] = {2 * kBlockBytes, std::nullopt};
  manifest.items.push_back(
      {"__0_0.distcp", 0, kBlockBytes + 1, "a \"name\" of a\ttensor", {1, UINT64_MAX}});
  manifest.items.push_back({"__0_0.distcp", kBlockBytes + 1, 0, "model.b [0, 0]", {}});
  return manifest;
}

TEST(Manifest, IsTheJsonOfItsHeader) {
  const std::string text = encode_manifest(sample());
  const auto json = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_EQ(json.dump(), R"({"block_bytes":1048576,"files":{".metadata":{"bytes":4711,"checksum":)"
                         R"("123456789abcdef0"},"__0_0.distcp":{"bytes":2097152}},"items":[)"
                         R"(["__0_0.distcp",0,1048577,"a \"name\" of a\ttensor",)"
                         R"("0000000000000001ffffffffffffffff"],)"
                         R"(["__0_0.distcp",1048577,0,"model.b [0, 0]",""]]})");
  EXPECT_EQ(text.substr(text.find('\n') + 1), json.dump() + "\n");
}

TEST(Manifest, RunningOutOfMemoryIsAnException) {
  const Manifest manifest = sample();
  bool done = false;
  for (int64_t allocations = 0; !done; ++allocations) {
    const FewAllocations few(allocations);
    try {
      done = !encode_manifest(manifest).empty();
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
