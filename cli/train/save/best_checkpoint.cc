#include "cli/train/save/best_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "cli/train/metrics/run_lock.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kCheckpoint[] = "checkpoint";
constexpr char kRecord[] = "best.json";
constexpr char kNewRecord[] = "best.json.tmp";

std::string inside(const std::string& directory, const std::string& name) {
  return directory + "/" + name;
}

// Also what a save that was interrupted has left: checkpoint.tmp-..., checkpoint.old-...
bool is_own(const std::string& name) {
  const std::string unfinished = std::string(kCheckpoint) + ".";
  return name == kCheckpoint || name == kRecord || name == kNewRecord ||
         name.compare(0, unfinished.size(), unfinished) == 0;
}

// The loss in best.json; nothing is lower than infinity, where there is none yet.
double recorded_loss(const std::string& directory) {
  const std::string path = inside(directory, kRecord);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::numeric_limits<double>::infinity();
  }
  std::ostringstream text;
  text << file.rdbuf();
  const Json record = Json::parse(text.str(), nullptr, false);
  if (!record.is_object() || !record.contains("loss") || !record["loss"].is_number()) {
    throw Failure("--save-best " + directory + ": " + path +
                  " holds no loss: expected {\"step\": N, \"loss\": X}; move the directory away to "
                  "begin anew");
  }
  return record["loss"].get<double>();
}

// The file appears whole, in place of the one before, also if the machine goes down.
void write_record(const std::string& directory, int64_t step, double loss) {
  const std::string path = inside(directory, kNewRecord);
  const std::string line = nlohmann::ordered_json({{"step", step}, {"loss", loss}}).dump() + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool is_written = file >= 0 && write(file, line.data(), line.size()) == ssize_t(line.size()) &&
                    fsync(file) == 0;
  is_written = is_written && rename(path.c_str(), inside(directory, kRecord).c_str()) == 0;
  const int error = errno;
  if (file >= 0) {
    close(file);
  }
  if (!is_written) {
    throw Failure("--save-best " + directory + ": " + kRecord +
                  " cannot be written: " + std::strerror(error));
  }
}

// Two runs in one directory would each replace the best of the other.
int open_alone(const std::string& directory) {
  const int opened = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) {
    throw Failure("--save-best " + directory + ": " + std::strerror(errno));
  }
  if (!lock_for_this_run(opened)) {
    close(opened);
    throw Failure("--save-best " + directory +
                  ": another run writes to it: wait for its end, or name another directory");
  }
  return opened;
}

// The best of a run before is not that of this one.
void forget_record(const std::string& directory) {
  std::error_code error;
  fs::remove(inside(directory, kRecord), error);
  if (error) {
    throw Failure("--save-best " + directory + ": " + kRecord + ": " + error.message());
  }
}

}  // namespace

void claim_best_directory(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!is_own(name)) {
      throw Failure("--save-best " + directory + ": it holds " + name +
                    ", which --save-best does not write: expected a new or empty directory, or "
                    "one of an earlier run");
    }
  }
  if (error) {
    throw Failure("--save-best " + directory + ": " + error.message());
  }
}

BestCheckpoint::BestCheckpoint(const TrainOptions& options, const Mesh& mesh, int64_t next_step)
    : options_(options),
      is_first_rank_(info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get()).rank == 0) {
  if (options.save_best.empty()) {
    return;
  }
  if (is_first_rank_) {
    directory_ = open_alone(options.save_best);
  }
  if (next_step == 0) {
    if (is_first_rank_) {
      forget_record(options.save_best);
    }
    return;
  }
  // Rank 0 alone reads, and every rank saves when it does.
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  std::array<double, 1> loss = {is_first_rank_ ? recorded_loss(options.save_best) : kLeast};
  check(fsdp2_mesh_all_reduce(mesh.get(), loss.data(), loss.size(), FSDP2_REDUCE_MAX));
  lowest_ = loss[0];
}

BestCheckpoint::~BestCheckpoint() {
  if (directory_ >= 0) {
    close(directory_);
  }
}

std::string BestCheckpoint::after_evaluation(const RunState& state, int64_t next_step,
                                             double loss) {
  if (options_.save_best.empty() || !(loss < lowest_)) {
    return "";
  }
  const std::string path = inside(options_.save_best, kCheckpoint);
  fsdp2_save_options save = FSDP2_SAVE_OPTIONS_INIT;
  save_run(options_, state, path, save);
  lowest_ = loss;
  if (is_first_rank_) {
    write_record(options_.save_best, next_step, loss);
  }
  return path;
}

}  // namespace fsdp2::cli
