#include "core/train/data/data_loader.h"

#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/train/data/data_loader_shuffle.h"

namespace fsdp2::train {

namespace {

auto fields(const DataPosition& position) {
  return std::tie(position.epoch, position.window, position.window_count, position.sequence_length,
                  position.shuffle_seed, position.own_order);
}

std::string order_text(const std::optional<uint64_t>& seed) {
  return seed ? fmt::format("shuffled with seed {}", *seed) : "in the file's order";
}

// Two numbers below this limit can be multiplied, and windows of a file added, without overflow.
constexpr int64_t kLimit = int64_t{1} << 31;

// Windows of an epoch that never ends.
constexpr int64_t kEndless = int64_t{1} << 62;
constexpr int64_t kMostAhead = 1 << 10;

void check_positive(const char* name, int64_t value) {
  FSDP2_CHECK(value >= 1 && value < kLimit, Code::kInvalidArgument,
              "{}: expected a number in [1, {}), found {}", name, kLimit, value);
}

int64_t product(const char* what, int64_t a, int64_t b) {
  int64_t result = 0;
  FSDP2_CHECK(!__builtin_mul_overflow(a, b, &result), Code::kInvalidArgument,
              "{} overflows: {} x {}", what, a, b);
  return result;
}

DataLoaderOptions checked(const DataLoaderOptions& options) {
  check_positive("world_size", options.world_size);
  check_positive("batch_size", options.batch_size);
  check_positive("accumulation_steps", options.accumulation_steps);
  FSDP2_CHECK(options.rank >= 0 && options.rank < options.world_size, Code::kInvalidArgument,
              "rank {} is not in [0, {})", options.rank, options.world_size);
  FSDP2_CHECK(options.read_ahead >= 0 && options.read_ahead <= kMostAhead, Code::kInvalidArgument,
              "read_ahead: expected a number in [0, {}], found {}", kMostAhead, options.read_ahead);
  return options;
}

}  // namespace

bool operator==(const DataPosition& a, const DataPosition& b) { return fields(a) == fields(b); }

int64_t micro_batch_size(int64_t global_batch, int64_t world_size, int64_t accumulation_steps) {
  check_positive("global batch", global_batch);
  check_positive("world size", world_size);
  check_positive("accumulation steps", accumulation_steps);
  const int64_t parts = world_size * accumulation_steps;
  FSDP2_CHECK(global_batch % parts == 0, Code::kInvalidArgument,
              "global batch {} is not a multiple of {} ranks x {} accumulation steps = {}",
              global_batch, world_size, accumulation_steps, parts);
  return global_batch / parts;
}

DataLoader::DataLoader(std::shared_ptr<const WindowSource> data, const DataLoaderOptions& options)
    : data_(std::move(data)),
      options_(checked(options)),
      window_count_(data_->window_count(options.sequence_length)),
      own_order_(data_->own_order()) {
  const std::string left_out = data_->left_out();
  if (options_.rank == 0 && !left_out.empty()) {
    log(LogLevel::kWarning, "data", "{}", left_out);
  }
  micro_step_windows_ = options.batch_size * options.world_size;
  step_windows_ = product("windows a step", micro_step_windows_, options.accumulation_steps);
  lay_out_epoch();
  if (options_.read_ahead > 0) {
    ahead_ = std::make_unique<ReadAhead>();
  }
}

void DataLoader::lay_out_epoch() {
  if (!own_order_.empty()) {
    epoch_windows_ = kEndless;
    return;
  }
  if (options_.order == DataOrder::kFile) {
    epoch_windows_ = window_count_;
    return;
  }
  const int64_t whole_steps = window_count_ / step_windows_;
  const bool has_rest = window_count_ % step_windows_ != 0;
  const bool pads = has_rest && options_.last_step == LastStep::kPad;
  FSDP2_CHECK(whole_steps > 0 || pads, Code::kInvalidArgument,
              "{}: has {} windows of sequence length {}, a step takes {}: dropping the last "
              "incomplete step leaves nothing",
              data_->path(), window_count_, options_.sequence_length, step_windows_);
  epoch_windows_ = product("windows an epoch", whole_steps + (pads ? 1 : 0), step_windows_);
}

int64_t DataLoader::steps_per_epoch() const {
  const int64_t windows = own_order_.empty() ? epoch_windows_ : window_count_;
  return windows / step_windows_ + (windows % step_windows_ != 0 ? 1 : 0);
}

int64_t DataLoader::window_at(int64_t epoch, int64_t number) const {
  epoch += number / epoch_windows_;
  number %= epoch_windows_;
  if (!own_order_.empty() || options_.order == DataOrder::kFile) {
    return number;
  }
  // Padding takes the epoch's first windows again.
  return shuffled(number % window_count_, window_count_, options_.seed, epoch);
}

std::vector<int64_t> DataLoader::windows_after(int64_t micro_steps) const {
  std::vector<int64_t> windows;
  windows.reserve(static_cast<size_t>(options_.batch_size));
  const int64_t first =
      window_ + micro_steps * micro_step_windows_ + options_.rank * options_.batch_size;
  for (int64_t j = 0; j < options_.batch_size; ++j) {
    windows.push_back(window_at(epoch_, first + j));
  }
  return windows;
}

std::vector<int64_t> DataLoader::next_windows() const { return windows_after(0); }

TokenBatch DataLoader::read_next() {
  if (ahead_ == nullptr) {
    return data_->windows(next_windows(), options_.sequence_length);
  }
  for (auto i = static_cast<int64_t>(ahead_->pending()); i <= options_.read_ahead; ++i) {
    ahead_->add([data = data_, windows = windows_after(i), length = options_.sequence_length] {
      return data->windows(windows, length);
    });
  }
  try {
    return ahead_->take();
  } catch (...) {
    ahead_->clear();  // the next call tries this batch again
    throw;
  }
}

TokenBatch DataLoader::next() {
  TokenBatch batch = read_next();
  window_ += micro_step_windows_;
  epoch_ += window_ / epoch_windows_;
  window_ %= epoch_windows_;
  ++micro_steps_;
  return batch;
}

DataPosition DataLoader::position() const {
  DataPosition position{epoch_, window_, window_count_, options_.sequence_length};
  position.steps = steps();
  position.own_order = own_order_;
  if (own_order_.empty() && options_.order == DataOrder::kShuffle) {
    position.shuffle_seed = options_.seed;
  }
  return position;
}

void DataLoader::check(const DataPosition& position) const {
  FSDP2_CHECK(position.window_count == window_count_ &&
                  position.sequence_length == options_.sequence_length,
              Code::kInvalidArgument,
              "{}: has {} windows of sequence length {}, the position is for {} of {}: the data or "
              "the sequence length changed since it was saved",
              data_->path(), window_count_, options_.sequence_length, position.window_count,
              position.sequence_length);
  FSDP2_CHECK(position.epoch >= 0 && position.window >= 0, Code::kInvalidArgument,
              "{}: there is no position epoch {}, window {}", data_->path(), position.epoch,
              position.window);
  const std::optional<uint64_t> seed = this->position().shuffle_seed;
  FSDP2_CHECK(position.shuffle_seed == seed, Code::kInvalidArgument,
              "{}: is read {}, the position is for data {}: expected the order and the seed that "
              "it was saved with",
              data_->path(), order_text(seed), order_text(position.shuffle_seed));
  FSDP2_CHECK(position.own_order == own_order_, Code::kInvalidArgument,
              "{}: is read as [{}], the position is for [{}]: expected the files, the weights, the "
              "order and the seed that it was saved with",
              data_->path(), own_order_, position.own_order);
}

void DataLoader::go_to(int64_t epoch, int64_t window, int64_t steps) {
  epoch_ = epoch;
  window_ = window;
  first_step_ = steps;
  micro_steps_ = 0;
  if (ahead_ != nullptr) {
    ahead_->clear();
  }
}

void DataLoader::seek(const DataPosition& position) {
  check(position);
  // An epoch may be shorter than it was with another number of windows a step.
  const bool is_over = position.window >= epoch_windows_;
  go_to(position.epoch + (is_over ? 1 : 0), is_over ? 0 : position.window, position.steps);
}

void DataLoader::seek_step(int64_t step) {
  FSDP2_CHECK(step >= 0, Code::kInvalidArgument, "step: expected >= 0, found {}", step);
  const int64_t windows = product("windows before the step", step, step_windows_);
  go_to(windows / epoch_windows_, windows % epoch_windows_, step);
}

}  // namespace fsdp2::train
