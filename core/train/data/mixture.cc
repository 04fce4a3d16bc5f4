#include "core/train/data/mixture.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/data_loader_shuffle.h"

namespace fsdp2::train {

namespace {

constexpr size_t kMostParts = 256;

// The sum of the weights, which are sound.
double sum_of_weights(const std::vector<MixturePart>& parts) {
  FSDP2_CHECK(!parts.empty() && parts.size() <= kMostParts, Code::kInvalidArgument,
              "a mixture: expected 1 to {} files, found {}", kMostParts, parts.size());
  double sum = 0;
  for (const MixturePart& part : parts) {
    FSDP2_CHECK(std::isfinite(part.weight) && part.weight > 0, Code::kInvalidArgument,
                "{}: its weight is {}: expected a positive number", part.source->path(),
                part.weight);
    sum += part.weight;
  }
  FSDP2_CHECK(std::isfinite(sum), Code::kInvalidArgument,
              "the weights of a mixture overflow: expected smaller ones");
  return sum;
}

// Whole numbers that are as the weights, and kCycle together: what rounding down leaves goes to
// those that lost most by it.
std::vector<int64_t> shares_of(const std::vector<MixturePart>& parts) {
  const double sum = sum_of_weights(parts);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> losses;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double exact = parts[i].weight / sum * static_cast<double>(Mixture::kCycle);
    shares.push_back(static_cast<int64_t>(exact));
    losses.emplace_back(static_cast<double>(shares.back()) - exact, i);
  }
  std::sort(losses.begin(), losses.end());
  int64_t left = Mixture::kCycle - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (size_t i = 0; left > 0; ++i, --left) {
    ++shares[losses[i % losses.size()].second];
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    FSDP2_CHECK(shares[i] > 0, Code::kInvalidArgument,
                "{}: its weight {} is less than a {}th of all weights, {}: expected more",
                parts[i].source->path(), parts[i].weight, Mixture::kCycle, sum);
  }
  return shares;
}

// Row `row` of `out` from row 0 of `from`.
void put_row(const at::Tensor& from, int64_t row, const at::Tensor& out) {
  const at::Tensor whole = from.contiguous();
  std::copy_n(whole.const_data_ptr<int64_t>(), whole.numel(),
              out.mutable_data_ptr<int64_t>() + row * whole.numel());
}

// What is seen in a batch, that of one row after that of another.
constexpr at::Tensor TokenBatch::* kSeen[] = {&TokenBatch::pixels, &TokenBatch::grids,
                                              &TokenBatch::video_pixels, &TokenBatch::video_grids,
                                              &TokenBatch::seconds_per_grid};

}  // namespace

Mixture::Mixture(std::vector<MixturePart> parts, int64_t sequence_length, DataOrder order,
                 uint64_t seed)
    : parts_(std::move(parts)), order_(order), seed_(seed), shares_(shares_of(parts_)) {
  for (const MixturePart& part : parts_) {
    counts_.push_back(part.source->window_count(sequence_length));
  }
  lay_out_cycle();
}

void Mixture::lay_out_cycle() {
  std::vector<int64_t> taken(parts_.size(), 0);
  for (int64_t place = 0; place < kCycle; ++place) {
    // How far a source is behind, in windows, times kCycle. No source takes more than its share, so
    // that a cycle ends even.
    size_t next = parts_.size();
    int64_t most = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t behind = (place + 1) * shares_[i] - taken[i] * kCycle;
      if (taken[i] < shares_[i] && (next == parts_.size() || behind > most)) {
        next = i;
        most = behind;
      }
    }
    turns_.push_back(static_cast<uint8_t>(next));
    before_.push_back(static_cast<uint16_t>(taken[next]++));
  }
}

Mixture::Draw Mixture::draw(int64_t number) const {
  const auto place = static_cast<size_t>(number % kCycle);
  const size_t part = turns_[place];
  const int64_t own = number / kCycle * shares_[part] + before_[place];
  const int64_t epoch = own / counts_[part];
  const int64_t window = own % counts_[part];
  return {part, epoch,
          order_ == DataOrder::kShuffle ? shuffled(window, counts_[part], seed_ + part, epoch)
                                        : window};
}

int64_t Mixture::window_count(int64_t sequence_length) const {
  int64_t count = 0;
  for (const MixturePart& part : parts_) {
    count += part.source->window_count(sequence_length);
  }
  return count;
}

TokenBatch Mixture::windows(const std::vector<int64_t>& numbers, int64_t sequence_length) const {
  const std::vector<int64_t> shape{static_cast<int64_t>(numbers.size()), sequence_length};
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  TokenBatch all{at::empty(shape, on_host), at::empty(shape, on_host), at::empty(shape, on_host)};
  std::vector<std::vector<at::Tensor>> seen(std::size(kSeen));
  for (size_t i = 0; i < numbers.size(); ++i) {
    FSDP2_CHECK(numbers[i] >= 0, Code::kInvalidArgument, "a mixture has no window {}", numbers[i]);
    const Draw drawn = draw(numbers[i]);
    const TokenBatch one = parts_[drawn.part].source->windows({drawn.window}, sequence_length);
    const auto row = static_cast<int64_t>(i);
    put_row(one.inputs, row, all.inputs);
    put_row(one.labels, row, all.labels);
    put_row(one.positions, row, all.positions);
    for (size_t kind = 0; kind < seen.size(); ++kind) {
      if ((one.*kSeen[kind]).defined()) {
        seen[kind].push_back(one.*kSeen[kind]);
      }
    }
  }
  for (size_t kind = 0; kind < seen.size(); ++kind) {
    if (!seen[kind].empty()) {
      all.*kSeen[kind] = at::cat(seen[kind]);
    }
  }
  return all;
}

int64_t Mixture::image_count() const {
  int64_t count = 0;
  for (const MixturePart& part : parts_) {
    count += part.source->image_count();
  }
  return count;
}

int64_t Mixture::video_count() const {
  int64_t count = 0;
  for (const MixturePart& part : parts_) {
    count += part.source->video_count();
  }
  return count;
}

int64_t Mixture::video_inputs() const {
  int64_t most = 0;
  for (const MixturePart& part : parts_) {
    most = std::max(most, part.source->video_inputs());
  }
  return most;
}

std::string Mixture::extent() const {
  std::string text;
  for (size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format("share of file {}={}\n{}", i, shares_[i], parts_[i].source->extent());
  }
  return text;
}

std::string Mixture::left_out() const {
  std::string text;
  for (const MixturePart& part : parts_) {
    const std::string own = part.source->left_out();
    text += (text.empty() || own.empty() ? "" : "; ") + own;
  }
  return text;
}

std::string Mixture::own_order() const {
  std::string text = "mixture";
  for (size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format(" {}x{}", counts_[i], shares_[i]);
  }
  return text + (order_ == DataOrder::kShuffle ? fmt::format(" seed {}", seed_) : " in file order");
}

}  // namespace fsdp2::train
