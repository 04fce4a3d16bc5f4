#include "core/ckpt/ranks/sharded_save.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/progress_log.h"
#include "core/base/quiet_thread.h"
#include "core/ckpt/dcp/description.h"
#include "core/ckpt/ranks/rank_exchange.h"
#include "core/ckpt/ranks/rank_failures.h"
#include "core/ckpt/ranks/rank_result.h"
#include "core/ckpt/ranks/write_plan.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/pending_directory.h"
#include "core/ckpt/store/storage_path.h"
#include "core/comm/agreement.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kOutcome[] = "outcome";
constexpr char kDirectory[] = "directory";

std::string result_key(int rank) { return fmt::format("result/{}", rank); }

// What all ranks have written.
std::vector<DcpPart> parts_of(std::vector<RankResult> results) {
  std::vector<DcpPart> parts;
  for (RankResult& result : results) {
    std::move(result.parts.begin(), result.parts.end(), std::back_inserter(parts));
  }
  return parts;
}

// REQUIRES: no entry is an object.
std::vector<TensorSpec> tensor_specs(const std::vector<DcpEntry>& entries) {
  std::vector<TensorSpec> specs;
  for (const DcpEntry& entry : entries) {
    specs.push_back({entry.name, entry.tensor->dtype, entry.tensor->shape});
  }
  return specs;
}

}  // namespace

struct ShardedSaver::Job {
  Job(std::shared_ptr<Mesh> mesh_in, ShardedSaveOptions options_in)
      : mesh(std::move(mesh_in)),
        options(std::move(options_in)),
        team(mesh->team()),
        exchange(team) {}

  // A part of this rank's work, whose error becomes its result: an exception of one rank alone
  // would leave the others waiting for it.
  template <typename Work>
  void attempt(const Work& work) {
    if (!failed) {
      try {
        work();
      } catch (...) {
        failed = current_exception_as_error();
      }
    }
  }

  // The whole of it once the snapshot is taken: on any thread. Throws the outcome.
  void run();

  std::vector<DcpPart> write_own();
  void publish(std::vector<RankResult> results);
  void remove_old(bool is_saved);
  void collect();

  std::shared_ptr<Mesh> mesh;
  ShardedSaveOptions options;
  Team& team;
  RankExchange exchange;
  std::string target;                       // options.path, wherever the process goes meanwhile
  std::optional<PendingDirectory> pending;  // rank 0
  std::string directory;                    // where to write
  std::vector<DcpEntry> entries;            // tensors, then objects; without chunks and storage
  std::vector<PartItem> items;              // what this rank writes
  std::optional<Error> failed;              // of this rank
};

std::vector<DcpPart> ShardedSaver::Job::write_own() {
  std::mutex mutex;
  ProgressLog progress_log(
      "checkpoint", fmt::format("saving {}: part of rank {}", options.path, team.own_rank_in_job()),
      static_cast<double>(bytes_of(items)));
  const auto progress = [&](int64_t bytes) {
    exchange.note_progress();
    if (team.rank() == 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      progress_log.add(bytes);
    }
  };
  if (options.format == CheckpointFormat::kShardedSafetensors) {
    write_safetensors_part(directory, team.rank(), tensor_specs(entries), items,
                           options.file_numbers, progress);
    return {};
  }
  return write_part(directory, team.rank(), items, options.files, progress);
}

// Rank 0: the end of a save that no rank has failed in.
void ShardedSaver::Job::publish(std::vector<RankResult> results) {
  if (options.format == CheckpointFormat::kDcpDirectory) {
    write_dcp_description(directory, entries, parts_of(std::move(results)));
  }
  exchange.note_progress();
  pending->commit();
}

// Rank 0: removes what the save has replaced and what keep_last leaves no place for or, of a save
// that failed, what it has written. A slow disk may take longer for it than the others would wait.
void ShardedSaver::Job::remove_old(bool is_saved) {
  pending.reset();
  if (is_saved && options.keep_last > 0) {
    try {
      keep_last_checkpoints(target, options.keep_last);
    } catch (const std::exception& error) {  // the new one is there all the same
      log(LogLevel::kWarning, "checkpoint", "{}: cannot remove the oldest beside it: {}",
          options.path, error.what());
    }
  }
}

// Rank 0: waits for all ranks, ends the save and tells the outcome: who has failed.
void ShardedSaver::Job::collect() {
  const auto answers = exchange.get_of_all(result_key, "to write its part of " + options.path);
  std::vector<RankResult> results;
  std::vector<RankFailure> failures;
  int heard_of = 0;
  for (int rank = 0; rank < team.size(); ++rank) {
    const RankExchange::Answer& answer = answers[rank];
    if (answer.error) {
      failures.push_back({team.rank_in_job(rank), *answer.error, /*is_told=*/false});
    } else {
      heard_of += rank != 0 ? 1 : 0;
      try {
        results.push_back(decode_result(answer.text));
        if (results.back().error) {
          failures.push_back({team.rank_in_job(rank), *results.back().error});
        }
      } catch (...) {  // the others wait for the outcome
        failures.push_back({team.own_rank_in_job(), current_exception_as_error()});
      }
    }
    exchange.remove(result_key(rank));
  }
  if (failures.empty()) {
    try {
      publish(std::move(results));
    } catch (...) {
      failures.push_back({team.own_rank_in_job(), current_exception_as_error()});
    }
  }
  exchange.put(kOutcome, encode_failures(failures));
  remove_old(failures.empty());
  // This process may keep the store, and end on what it is told here. A rank that was not heard of
  // is not waited for again.
  if (exchange.wait_until_read_by(heard_of) && heard_of == team.size() - 1) {
    exchange.remove(kOutcome);
    exchange.remove(kDirectory);
  }
  throw_failures(failures, team.own_rank_in_job());
}

void ShardedSaver::Job::run() {
  const at::NoGradGuard no_grad;
  std::string result;
  attempt([&] { result = encode_result({{}, write_own()}); });
  exchange.put(result_key(team.rank()), failed ? encode_result({failed, {}}) : result);
  if (team.rank() == 0) {
    collect();
    return;
  }
  const auto failures = decode_failures(exchange.get(kOutcome, 0, "to complete " + options.path));
  exchange.note_read();
  throw_failures(failures, team.own_rank_in_job());
}

ShardedSaver::ShardedSaver(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

ShardedSaver::~ShardedSaver() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (outcome_) {
    log(LogLevel::kError, "checkpoint", "a save failed, and nobody has asked for its outcome: {}",
        outcome_->message());
  }
}

namespace {

void check_format(const StateDict& state, const ShardedSaveOptions& options) {
  if (options.format == CheckpointFormat::kDcpDirectory) {
    return;
  }
  FSDP2_CHECK(options.format == CheckpointFormat::kShardedSafetensors, Code::kUnsupported,
              "{}: {} is not written by all ranks", options.path, format_name(options.format));
  FSDP2_CHECK(options.keep_last == 0, Code::kUnsupported,
              "{}: keep_last is for DCP directories, which show whether they are complete",
              options.path);
  check_fits_safetensors(state, options.file_numbers);
}

void check_overwrite(const ShardedSaveOptions& options) {
  if (!options.overwrite && std::filesystem::exists(resolve_checkpoint(options.path))) {
    throw Error(Code::kIo,
                fmt::format("{}: already exists, and is not to be overwritten", options.path),
                EEXIST);
  }
}

}  // namespace

// Rank 0 also makes the temporary directory.
void ShardedSaver::agree_on(Job& job, const StateDict& state) {
  const ShardedSaveOptions& options = job.options;
  agree(job.team, "saving " + options.path, [&] {
    FSDP2_CHECK(!job.team.is_fake(), Code::kUnsupported,
                "{}: ranks of a fake world have nothing to save", options.path);
    FSDP2_CHECK(!options.path.empty() && options.keep_last >= 0, Code::kInvalidArgument,
                "expected a path and keep_last >= 0, got \"{}\" and {}", options.path,
                options.keep_last);
    FSDP2_CHECK(options.files.threads >= 1, Code::kInvalidArgument,
                "expected at least 1 thread to write with, got {}", options.files.threads);
    check_storage_path(options.path);
    check_format(state, options);
    state.check_has_memory();
    if (job.team.rank() == 0) {
      check_overwrite(options);
      series_.take(options.path);
      job.target = std::filesystem::absolute(options.path);
      job.pending.emplace(job.target, replaceable_by(options.format));
      job.exchange.put(kDirectory, job.pending->path());
    }
    return fmt::format("{}keep_last={}\noverwrite={}\nformat={}\nfile numbers={}\n",
                       plan_text(state), options.keep_last, options.overwrite,
                       format_name(options.format), options.file_numbers);
  });
}

std::unique_ptr<ShardedSaver::Job> ShardedSaver::prepare(const StateDict& state,
                                                         const ShardedSaveOptions& options) {
  wait();
  auto job = std::make_unique<Job>(mesh_, options);
  agree_on(*job, state);
  job->directory = job->exchange.get(kDirectory, 0, "to make the directory");
  list_items(*job, state);
  return job;
}

void ShardedSaver::list_items(Job& job, const StateDict& state) {
  std::vector<size_t> entry_of;  // of each of the state's tensors
  for (const StateTensor& tensor : state.tensors) {
    if (job.entries.empty() || job.entries.back().name != tensor.name) {
      job.entries.push_back({tensor.name,
                             tensor.path,
                             ChunkedTensor{tensor.local.scalar_type(), tensor.shape, {}},
                             {}});
    }
    entry_of.push_back(job.entries.size() - 1);
  }
  for (const StateObject& object : state.objects) {
    // Objects are few and small: rank 0 writes them.
    if (job.team.rank() == 0) {
      job.items.push_back({job.entries.size(), {}, {}, object.value});
    }
    job.entries.push_back({object.name, object.path, std::nullopt, {}});
  }
  for (const size_t index : tensors_to_write(job.team, state)) {
    const StateTensor& tensor = state.tensors[index];
    job.items.push_back({entry_of[index], tensor.offsets, tensor.local, {}});
  }
}

namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void ShardedSaver::take_snapshot(Job& job) {
  const at::NoGradGuard no_grad;
  int64_t bytes = 0;
  for (const PartItem& item : job.items) {
    bytes += item.local.defined() ? aligned_bytes(item.local) : 0;
  }
  const at::Tensor& memory = snapshot_.take(bytes);
  int64_t offset = 0;
  for (PartItem& item : job.items) {
    if (item.local.defined()) {
      const at::Tensor& from = item.local;
      const at::Tensor to = memory.narrow(0, offset, static_cast<int64_t>(from.nbytes()))
                                .view(from.scalar_type())
                                .view(from.sizes());
      to.copy_(from);
      offset += aligned_bytes(from);
      item.local = to;
    }
  }
}

void ShardedSaver::reserve(const StateDict& state) {
  if (!poll()) {
    return;
  }
  int64_t bytes = 0;
  for (const StateTensor& tensor : state.tensors) {
    bytes += aligned_bytes(tensor.local);
  }
  snapshot_.reserve(bytes, expected_bytes_to_write(mesh_->team(), state));
}

void ShardedSaver::save(const StateDict& state, const ShardedSaveOptions& options) {
  prepare(state, options)->run();
}

void ShardedSaver::start(const StateDict& state, const ShardedSaveOptions& options) {
  std::shared_ptr<Job> job = prepare(state, options);
  job->attempt([&] { take_snapshot(*job); });
  done_.store(false);
  job->attempt([&] { thread_ = start_quiet_thread([this, job] { run_in_background(*job); }); });
  if (!thread_.joinable()) {
    run_in_background(*job);  // no more than to tell the others
  }
}

void ShardedSaver::run_in_background(Job& job) noexcept {
  try {
    job.run();
  } catch (...) {
    outcome_ = current_exception_as_error();
  }
  done_.store(true);
}

void ShardedSaver::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (outcome_) {
    const Error error = *std::exchange(outcome_, std::nullopt);
    throw Error(error);
  }
}

}  // namespace fsdp2::ckpt
