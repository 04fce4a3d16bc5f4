// Checkpoints of one sharded run: what goes into them, in which format, and what they may replace.
//
//   Checkpointer checkpointer(root);
//   checkpointer.save("saving", [&] { return SaveRequest{"out/step-00000100", {}, objects}; });
//   ...
//   checkpointer.load("loading", [&] { return LoadRequest{"out", objects}; });
//
// Calls with a `read` are collective: every rank says what it is asked for, or throws, and then the
// others are told. What ranks must have alike is compared before anything is done. `what` names the
// call in messages. All ranks come to the same outcome, as in sharded_save.h. One thread at a time.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/state/state_dict.h"
#include "core/fsdp/unit.h"
#include "core/train/state/training_state.h"

namespace fsdp2::train {

// kDcpDirectory holds the run; the other formats hold the model alone.
struct SaveOptions {
  ckpt::CheckpointFormat format = ckpt::CheckpointFormat::kDcpDirectory;
  bool overwrite = true;                      // kPthPerRankDirectory: always
  bool background = false;                    // kDcpDirectory: copies, and writes later
  int64_t keep_last = 0;                      // kDcpDirectory: see ckpt::ShardedSaveOptions
  int64_t max_file_bytes = int64_t{5} << 30;  // kHuggingFaceDirectory
  std::optional<at::ScalarType> dtype;        // to round floats to; formats with whole weights
  bool allow_not_finite = false;              // see check_finite (state/finite_values.h)
};

// kUnsupported for options that the format does not have.
void check(const SaveOptions& options);
// Whether a save may replace what is at `path`; kIo that says what is in the way.
void check_replaceable(const std::string& path, const SaveOptions& options);

// What one rank is asked for. Any of the objects may be left out, the root too: it is the
// checkpointer's.
struct SaveRequest {
  std::string path;
  SaveOptions options;
  TrainingObjects objects;
  std::function<std::string()> config_json;  // kHuggingFaceDirectory: asked for its config.json
  std::string text;  // further "key=value" lines that must be equal on all ranks
};

struct LoadRequest {
  std::string path;  // a checkpoint of any format, or the directory of a series
  // Rank 0 alone reads it and sends each tensor whole to the others, whose path does not count:
  // they need not see the files.
  bool from_rank0 = false;
  TrainingObjects objects;
  bool partial = false;  // see load_training_state
  std::string text;
};

struct StateRequest {
  TrainingObjects objects;
  OptimizerKeys keys = OptimizerKeys::kByGroup;
  std::string text;
};

// A load from memory.
struct LoadStateRequest {
  const ckpt::StateDict* state = nullptr;  // null only on other ranks than 0 with from_rank0
  bool from_rank0 = false;                 // rank 0's, which the others get from it
  TrainingObjects objects;
  bool partial = false;
  std::string text;
};

// The model alone, whole.
struct SaveModelRequest {
  std::string path;
  std::optional<ckpt::CheckpointFormat> format;  // unset: by the path's name
  std::string config_json;                       // kHuggingFaceDirectory
};

class Checkpointer {
 public:
  explicit Checkpointer(std::shared_ptr<fsdp::Unit> root);

  // Errors: those of the format's writer; those of check_finite, on all ranks.
  void save(const std::string& what, const std::function<SaveRequest()>& read);
  // Waits for a save under way first: it may be what is to be read.
  void load(const std::string& what, const std::function<LoadRequest()>& read);

  // The run's tensors, which the state shares, and values.
  ckpt::StateDict state(const std::string& what, const std::function<StateRequest()>& read);
  void load_state(const std::string& what, const std::function<LoadStateRequest()>& read);

  void save_model(const std::string& what, const std::function<SaveModelRequest()>& read);
  void load_model(const std::string& what, const std::function<std::string()>& read_path);

  // Local: makes the memory for saves in the background. Errors: kOutOfMemory.
  void reserve(TrainingObjects objects);
  // Local: whether no save is under way.
  bool poll() const { return saver_.poll(); }
  // Collective: until there is none; throws its outcome, once.
  void wait() { saver_.wait(); }

  // What the last load found, and where; none if there was no load of a run.
  struct Loaded {
    std::string path;
    LoadReport report;
  };
  const std::optional<Loaded>& loaded() const { return loaded_; }

 private:
  Team& team() const { return root_->mesh().team(); }
  TrainingObjects with_root(TrainingObjects objects) const;
  void write(const SaveRequest& request, const std::string& config_json);
  LoadReport load_from_rank_zero(const LoadRequest& request);

  std::shared_ptr<fsdp::Unit> root_;
  ckpt::ShardedSaver saver_;
  std::optional<Loaded> loaded_;
};

}  // namespace fsdp2::train
