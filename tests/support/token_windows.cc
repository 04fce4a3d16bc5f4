#include "tests/support/token_windows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace fsdp2 {

at::Tensor read_windows(const std::string& path, int64_t count, int64_t length) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint16_t> raw(static_cast<size_t>(count * length + 1));
  file.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(raw.size() * 2));
  const at::Tensor all = at::empty({count * length + 1}, at::kLong);
  std::copy(raw.begin(), raw.end(), all.mutable_data_ptr<int64_t>());
  return all.unfold(0, length + 1, length).contiguous();
}

}  // namespace fsdp2
