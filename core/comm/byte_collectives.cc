#include "core/comm/byte_collectives.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/comm/all_gather_numbers.h"

namespace fsdp2 {

namespace {

constexpr int64_t kRefused = -1;  // in place of a length: the root cannot go on

// The strings are the host's.
at::Tensor empty_lengths(int64_t n) {
  return at::empty({n}, at::device(at::kCPU).dtype(at::kLong));
}

at::Tensor zero_bytes(int64_t n) { return at::zeros({n}, at::device(at::kCPU).dtype(at::kByte)); }

at::Tensor padded(const std::string& bytes, int64_t length) {
  at::Tensor tensor = zero_bytes(length);
  if (!bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return tensor;
}

std::string text_of(const at::Tensor& tensor, int64_t start, int64_t length) {
  return {static_cast<const char*>(tensor.const_data_ptr()) + start, static_cast<size_t>(length)};
}

int64_t longest(const std::vector<int64_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

std::vector<std::string> all_gather_bytes(Comm& comm, const std::string& mine) {
  const std::vector<int64_t> lengths =
      all_gather_numbers(comm, {static_cast<int64_t>(mine.size())});
  const int64_t length = longest(lengths);
  const at::Tensor all = at::empty({length * comm.size()}, at::device(at::kCPU).dtype(at::kByte));
  if (length > 0) {
    comm.all_gather(all, padded(mine, length)).wait();
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    texts.push_back(text_of(all, rank * length, lengths[rank]));
  }
  return texts;
}

std::vector<std::string> gather_bytes(Comm& comm, const std::string& mine, int root) {
  FSDP2_CHECK(0 <= root && root < comm.size(), Code::kInvalidArgument,
              "gather: root {} is not a rank of group {}, which has {}", root, comm.name(),
              comm.size());
  std::vector<std::string> texts = all_gather_bytes(comm, mine);
  return comm.rank() == root ? std::move(texts) : std::vector<std::string>();
}

std::string broadcast_bytes(Comm& comm, const std::string& bytes, int root) {
  at::Tensor length = empty_lengths(1);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(bytes.size());
  comm.broadcast(length, root).wait();
  const int64_t n = length.const_data_ptr<int64_t>()[0];
  at::Tensor data = comm.rank() == root ? padded(bytes, n) : zero_bytes(n);
  if (n > 0) {
    comm.broadcast(data, root).wait();
  }
  return text_of(data, 0, n);
}

std::string scatter_bytes(Comm& comm, const std::vector<std::string>& parts, int root) {
  const int size = comm.size();
  const bool sends = comm.rank() == root;
  const bool fits = !sends || static_cast<int>(parts.size()) == size;
  std::vector<int64_t> lengths(size, fits ? 0 : kRefused);
  if (sends && fits) {
    std::transform(parts.begin(), parts.end(), lengths.begin(),
                   [](const std::string& part) { return static_cast<int64_t>(part.size()); });
  }
  at::Tensor sent = empty_lengths(size);
  std::copy(lengths.begin(), lengths.end(), sent.data_ptr<int64_t>());
  comm.broadcast(sent, root).wait();
  lengths.assign(sent.const_data_ptr<int64_t>(), sent.const_data_ptr<int64_t>() + size);
  FSDP2_CHECK(lengths[0] != kRefused, Code::kInvalidArgument,
              "scatter in group {}: rank {} of it passed another number of parts than {} ranks",
              comm.name(), root, size);
  const int64_t length = longest(lengths);
  at::Tensor own = zero_bytes(length);
  if (length > 0) {
    at::Tensor all;
    if (sends) {
      all = zero_bytes(size * length);
      for (int rank = 0; rank < size; ++rank) {
        std::copy(parts[rank].begin(), parts[rank].end(),
                  static_cast<char*>(all.mutable_data_ptr()) + rank * length);
      }
    }
    comm.scatter(own, all, root).wait();
  }
  return text_of(own, 0, lengths[comm.rank()]);
}

}  // namespace fsdp2
