#include "core/nn/kernels/blocked_attention.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "core/nn/kernels/cpu_vectors.h"
#include "core/nn/kernels/simd_rows.h"

namespace fsdp2::nn::cpu_kernels {

namespace {

// Scores of a block of queries; several such blocks stay in a second-level cache of 1 MiB.
constexpr int64_t kBlockScores = int64_t{1} << 16;
constexpr int64_t kFewestQueries = 64;
constexpr int64_t kMostQueries = 128;
// oneDNN compiles a kernel for each set of sizes and strides, and keeps it for good. So numbers of
// queries and keys are rounded up, with zeros, and strides are few, whatever lengths there are.
constexpr int64_t kMostProductKeys = 512;
constexpr int64_t kKeyStep = 128;
// Elements of a product's keys, which stay in a second-level cache of 512 KiB beside their scores.
constexpr int64_t kProductNumel = int64_t{1} << 15;
constexpr int64_t kFineStep = 32;     // of queries, and of fewer keys than kKeyStep
constexpr int64_t kStrideApart = 16;  // rows a power of two apart would slow each other down

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// c [m,n] (+)= a [m,k] b [k,n]. Rows lie ld apart.
struct Rows {
  const float* data;
  int64_t ld;
};

void multiply(int64_t m, int64_t n, int64_t k, Rows a, Rows b, float* c, int64_t ld_c, bool add) {
  at::native::cpublas::brgemm(m, n, k, a.ld, b.ld, ld_c, add, a.data, b.data, c,
                              /*is_vnni=*/false);
}

// Calls work(begin, count) for the keys of each product, which have E elements.
template <typename Work>
void for_keys(int64_t keys, int64_t e, const Work& work) {
  const int64_t most =
      std::clamp(kProductNumel / e / kKeyStep * kKeyStep, kKeyStep, kMostProductKeys);
  for (int64_t begin = 0; begin < keys; begin += most) {
    work(begin, std::min(most, keys - begin));
  }
}

template <typename T>
void read(const T* from, float* to, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(from, n, to);
  } else {
    simd::widen(from, to, n);
  }
}

template <typename T>
void write(const float* from, T* to, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(from, n, to);
  } else {
    simd::narrow(from, to, n);
  }
}

// One head's rows [S,E] in a tensor [B,S,heads,E].
template <typename T>
struct Head {
  T* data;
  int64_t stride;

  Head(const at::Tensor& x, int64_t batch, int64_t head)
      : data(begin_of(x) + batch * x.stride(0) + head * x.stride(2)), stride(x.stride(1)) {}

  static T* begin_of(const at::Tensor& x) {
    if constexpr (std::is_const_v<T>) {
      return x.const_data_ptr<std::remove_const_t<T>>();
    } else {
      return x.mutable_data_ptr<T>();
    }
  }

  void read_rows(int64_t begin, int64_t count, int64_t e, float* to) const {
    for (int64_t row = 0; row < count; ++row) {
      read(data + (begin + row) * stride, to + row * e, e);
    }
  }
  void write_rows(const float* from, int64_t begin, int64_t count, int64_t e) const {
    for (int64_t row = 0; row < count; ++row) {
      write(from + row * e, data + (begin + row) * stride, e);
    }
  }
};

// Parts of one tensor, so that LibTorch's allocator, which may keep it, sees the scratch of a task.
class Scratch {
 public:
  explicit Scratch(std::initializer_list<int64_t> sizes) {
    int64_t total = 0;
    for (const int64_t size : sizes) {
      starts_.push_back(total);
      total += (size + kApart - 1) / kApart * kApart + kApart;
    }
    memory_ = at::empty({total}, at::device(at::kCPU).dtype(at::kFloat));
  }

  float* part(size_t i) const { return memory_.mutable_data_ptr<float>() + starts_[i]; }

 private:
  static constexpr int64_t kApart = 16;  // floats; parts 4 KiB apart would slow each other down

  at::Tensor memory_;
  std::vector<int64_t> starts_;
};

struct Sizes {
  int64_t batch, length, heads, kv_heads, e;
  int64_t group;    // heads for each key-value head
  int64_t queries;  // of a block
  int64_t padded;   // the length, rounded up as a number of keys
  int64_t stride;   // of scores and of transposed keys, at least `padded`

  explicit Sizes(const AttentionInputs& in)
      : batch(in.q.size(0)),
        length(in.q.size(1)),
        heads(in.q.size(2)),
        kv_heads(in.k.size(2)),
        e(in.q.size(3)),
        group(heads / kv_heads),
        queries(std::clamp(kBlockScores / length / kFewestQueries * kFewestQueries, kFewestQueries,
                           kMostQueries)),
        padded(keys_before(length)),
        stride(kKeyStep) {
    while (stride < padded) {
      stride *= 2;
    }
    stride += kStrideApart;
  }

  // How many keys the queries before `end` see, or a few more.
  static int64_t keys_before(int64_t end) {
    return rounded_up(end, end <= kKeyStep ? kFineStep : kKeyStep);
  }
};

// A block of queries of one head.
struct Block {
  int64_t begin;
  int64_t count;
  int64_t padded;  // the count, rounded up: rows of its scores
  int64_t keys;    // columns of its scores
  int64_t seen;    // by each query where it is not causal
  bool is_causal;

  int64_t seen_by(int64_t row) const { return is_causal ? begin + row + 1 : seen; }
};

template <typename Work>
void for_blocks_of_queries(const Sizes& of, bool is_causal, const Work& work) {
  for (int64_t begin = 0; begin < of.length; begin += of.queries) {
    const int64_t count = std::min(of.queries, of.length - begin);
    const int64_t keys = is_causal ? Sizes::keys_before(begin + count) : of.padded;
    work(Block{begin, count, rounded_up(count, kFineStep), keys, of.length, is_causal});
  }
}

// Calls work(batch, kv_head) for all of them, each by one thread.
template <typename Work>
void for_kv_heads(const Sizes& of, const Work& work) {
  at::parallel_for(0, of.batch * of.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      work(i / of.kv_heads, i % of.kv_heads);
    }
    at::native::cpublas::brgemm_release(/*is_vnni=*/false);
  });
}

// scores [padded,keys] of queries [padded,E] and transposed keys [E,keys].
void multiply_with_all(const Block& block, const Sizes& of, const float* rows,
                       const float* transposed, float* scores) {
  for_keys(block.keys, of.e, [&](int64_t key, int64_t n) {
    multiply(block.padded, n, of.e, {rows, of.e}, {transposed + key, of.stride}, scores + key,
             of.stride, /*add=*/false);
  });
}

// sum [padded,E] = weights [padded,keys] values [keys,E].
void mix(const Block& block, const Sizes& of, const float* weights, const float* values,
         float* sum) {
  for_keys(block.keys, of.e, [&](int64_t key, int64_t n) {
    multiply(block.padded, of.e, n, {weights + key, of.stride}, {values + key * of.e, of.e}, sum,
             of.e, /*add=*/key > 0);
  });
}

// sums [keys,E] += weights [padded,keys]^T rows [padded,E].
void add_mixed_back(const Block& block, const Sizes& of, const float* weights, const float* rows,
                    float* transposed, float* sums) {
  simd::transpose(weights, of.stride, block.padded, block.keys, transposed, block.padded);
  for_keys(block.keys, of.e, [&](int64_t key, int64_t n) {
    multiply(n, of.e, block.padded, {transposed + key * block.padded, block.padded}, {rows, of.e},
             sums + key * of.e, of.e, /*add=*/true);
  });
}

void fill_zeros(float* from, float* to) { std::fill(from, to, 0.0F); }

// 0 for the keys that a row does not see, and in the rows that pad the block.
void clear_unseen(const Block& block, const Sizes& of, float* scores) {
  for (int64_t row = 0; row < block.padded; ++row) {
    float* const of_row = scores + row * of.stride;
    fill_zeros(of_row + (row < block.count ? block.seen_by(row) : 0), of_row + block.keys);
  }
}

// The rows of a block [padded,E].
template <typename T>
void read_block(const Head<const T>& head, const Block& block, const Sizes& of, float* rows) {
  head.read_rows(block.begin, block.count, of.e, rows);
  fill_zeros(rows + block.count * of.e, rows + block.padded * of.e);
}

// All rows of a head [padded,E].
template <typename T>
void read_head(const Head<const T>& head, const Sizes& of, float* rows) {
  head.read_rows(0, of.length, of.e, rows);
  fill_zeros(rows + of.length * of.e, rows + of.padded * of.e);
}

template <typename T>
void forward(const AttentionInputs& in, const at::Tensor& out, const at::Tensor& log_sums) {
  const Sizes of(in);
  const int64_t of_head = of.padded * of.e;
  const int64_t of_head_transposed = of.stride * of.e;
  float* const log_sums_data = log_sums.mutable_data_ptr<float>();
  for_kv_heads(of, [&](int64_t batch, int64_t kv_head) {
    const Scratch scratch({of_head_transposed, of_head, of.queries * of.e, of.queries * of.stride});
    float* const keys = scratch.part(0);  // [E,S]
    float* const values = scratch.part(1);
    float* const rows = scratch.part(2);  // of queries, then of the result
    float* const scores = scratch.part(3);
    read_head(Head<const T>(in.k, batch, kv_head), of, values);
    simd::transpose(values, of.e, of.padded, of.e, keys, of.stride);
    read_head(Head<const T>(in.v, batch, kv_head), of, values);
    for (int64_t head = kv_head * of.group; head < (kv_head + 1) * of.group; ++head) {
      const Head<const T> q(in.q, batch, head);
      const Head<T> result(out, batch, head);
      for_blocks_of_queries(of, in.is_causal, [&](const Block& block) {
        read_block(q, block, of, rows);
        simd::scale(rows, static_cast<float>(in.scale), rows, block.count * of.e);
        multiply_with_all(block, of, rows, keys, scores);
        float sums[kMostQueries];
        for (int64_t row = 0; row < block.count; ++row) {
          float* const of_row = scores + row * of.stride;
          const float shift = simd::largest(of_row, block.seen_by(row));
          sums[row] = simd::exp_and_sum(of_row, shift, block.seen_by(row));
          log_sums_data[(batch * of.length + block.begin + row) * of.heads + head] =
              shift + std::log(sums[row]);
        }
        clear_unseen(block, of, scores);
        mix(block, of, scores, values, rows);
        for (int64_t row = 0; row < block.count; ++row) {
          simd::scale(rows + row * of.e, 1.0F / sums[row], rows + row * of.e, of.e);
        }
        result.write_rows(rows, block.begin, block.count, of.e);
      });
    }
  });
}

template <typename T>
void backward(const at::Tensor& dout, const AttentionInputs& in, const at::Tensor& out,
              const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
              const at::Tensor& dv) {
  const Sizes of(in);
  const int64_t of_head = of.padded * of.e;
  const int64_t of_head_transposed = of.stride * of.e;
  const int64_t of_block = of.queries * of.e;
  const int64_t of_scores = of.queries * of.stride;
  const auto scale = static_cast<float>(in.scale);
  const float* const log_sums_data = log_sums.const_data_ptr<float>();
  for_kv_heads(of, [&](int64_t batch, int64_t kv_head) {
    const Scratch scratch({of_head, of_head_transposed, of_head_transposed, of_head, of_head,
                           of_block, of_block, of_block, of_scores, of_scores, of_scores});
    float* const keys = scratch.part(0);
    float* const keys_transposed = scratch.part(1);
    float* const values_transposed = scratch.part(2);
    float* const key_sums = scratch.part(3);
    float* const value_sums = scratch.part(4);
    float* const queries = scratch.part(5);
    float* const douts = scratch.part(6);
    float* const rows = scratch.part(7);  // of the result, then of the queries' gradient
    float* const weights = scratch.part(8);
    float* const dweights = scratch.part(9);  // then those of the scores
    float* const transposed = scratch.part(10);
    read_head(Head<const T>(in.v, batch, kv_head), of, keys);
    simd::transpose(keys, of.e, of.padded, of.e, values_transposed, of.stride);
    read_head(Head<const T>(in.k, batch, kv_head), of, keys);
    simd::transpose(keys, of.e, of.padded, of.e, keys_transposed, of.stride);
    std::fill_n(key_sums, of_head, 0.0F);
    std::fill_n(value_sums, of_head, 0.0F);
    for (int64_t head = kv_head * of.group; head < (kv_head + 1) * of.group; ++head) {
      const Head<const T> q(in.q, batch, head);
      const Head<const T> result(out, batch, head);
      const Head<const T> dresult(dout, batch, head);
      const Head<T> dqueries(dq, batch, head);
      for_blocks_of_queries(of, in.is_causal, [&](const Block& block) {
        read_block(q, block, of, queries);
        simd::scale(queries, scale, queries, block.count * of.e);
        read_block(dresult, block, of, douts);
        read_block(result, block, of, rows);
        multiply_with_all(block, of, queries, keys_transposed, weights);
        multiply_with_all(block, of, douts, values_transposed, dweights);
        for (int64_t row = 0; row < block.count; ++row) {
          const int64_t place = (batch * of.length + block.begin + row) * of.heads + head;
          float* const of_row = weights + row * of.stride;
          simd::exp_and_sum(of_row, log_sums_data[place], block.seen_by(row));
          const float along = simd::dot(douts + row * of.e, rows + row * of.e, of.e);
          simd::softmax_gradients(of_row, along, dweights + row * of.stride, block.seen_by(row));
        }
        clear_unseen(block, of, weights);
        clear_unseen(block, of, dweights);
        add_mixed_back(block, of, weights, douts, transposed, value_sums);
        add_mixed_back(block, of, dweights, queries, transposed, key_sums);
        mix(block, of, dweights, keys, rows);
        simd::scale(rows, scale, rows, block.count * of.e);
        dqueries.write_rows(rows, block.begin, block.count, of.e);
      });
    }
    Head<T>(dk, batch, kv_head).write_rows(key_sums, 0, of.length, of.e);
    Head<T>(dv, batch, kv_head).write_rows(value_sums, 0, of.length, of.e);
  });
}

}  // namespace

bool has_blocked_attention() {
  static const bool has_products = [] {
    const float one = 1.0F;
    float product = 0.0F;
    try {
      multiply(1, 1, 1, {&one, 1}, {&one, 1}, &product, 1, /*add=*/false);
    } catch (const c10::Error&) {
      return false;
    }
    at::native::cpublas::brgemm_release(/*is_vnni=*/false);
    return true;
  }();
  return has_products;
}

bool prefers_blocked_attention(at::ScalarType dtype, bool is_causal) {
  const bool is_faster =
      (onednn_has_wider_vectors() || (is_causal && engines_have_avx2())) && has_blocked_attention();
  // Where LibTorch packs bf16, its attention has matrix units.
  return is_faster && (dtype == at::kFloat ||
                       (dtype == at::kBFloat16 && !at::native::cpublas::could_pack(at::kBFloat16)));
}

void attention_forward(const AttentionInputs& in, const at::Tensor& out,
                       const at::Tensor& log_sums) {
  in.q.scalar_type() == at::kFloat ? forward<float>(in, out, log_sums)
                                   : forward<c10::BFloat16>(in, out, log_sums);
}

void attention_backward(const at::Tensor& dout, const AttentionInputs& in, const at::Tensor& out,
                        const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
                        const at::Tensor& dv) {
  in.q.scalar_type() == at::kFloat ? backward<float>(dout, in, out, log_sums, dq, dk, dv)
                                   : backward<c10::BFloat16>(dout, in, out, log_sums, dq, dk, dv);
}

}  // namespace fsdp2::nn::cpu_kernels
