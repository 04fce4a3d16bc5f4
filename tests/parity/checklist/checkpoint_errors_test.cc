// Checklist, checkpoints: CKP-12, CKP-14, CKP-15, CKP-21. What goes wrong on one rank is an error
// on all, and nothing hangs.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "core/ckpt/store/checkpoint_directory.h"
#include "tests/core/base/file_fixture.h"
#include "tests/parity/checklist/checkpoint_layout.h"
#include "tests/parity/checklist/expected_error.h"

namespace fsdp2::checklist {
namespace {

class ChecklistCkpErrors : public FileTest {};

const at::Tensor& sixteen_rows() {
  static const at::Tensor rows = at::arange(32, at::kFloat).view({16, 2});
  return rows;
}

// A disk that is full for files of more than some bytes, for as long as the object lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(ChecklistCkpErrors, CKP12_APathOfAnotherStorageIsRefused) {
  run_ranks(2, [&](const WorldPtr& world) {
    StateDict state = state_of(sixteen_rows(), {{2}, "S"}, world->rank());
    const std::vector<std::string> words = {"abc://x.y", "cannot detect"};
    expect_error(Code::kUnsupported, words, [&] { save_state(world, state, {"abc://x.y"}); });
    expect_error(Code::kUnsupported, words, [&] { ckpt::load_state(*world, "abc://x.y", &state); });
    save_state(world, state, {path("by.path")});
    ckpt::load_state(*world, path("by.path"), &state);
  });
  EXPECT_FALSE(std::filesystem::exists("abc:"));
}

TEST_F(ChecklistCkpErrors, CKP14_EachStageOfASaveFailsWithItsCause) {
  write("file", "");
  run_ranks(1, [&](const WorldPtr& world) {
    const StateDict good = state_of(sixteen_rows(), Rows{0, 16});
    expect_error(Code::kIo, {path("file"), "Not a directory"},  // set-up
                 [&] { save_state(world, good, {path("file/run")}); });
    StateDict outside = good;
    outside.tensors[0].offsets = {1, 0};
    expect_error(Code::kInvalidArgument, {"t: ", "outside [16, 2]"},  // planning
                 [&] { save_state(world, outside, {path("run")}); });
    {
      const FileSizeLimit limit(1000);
      expect_error(Code::kIo, {"__0_0.distcp", "File too large"},  // writing
                   [&] { save_state(world, good, {path("run")}); });
    }
    StateDict long_name;
    long_name.add_whole({std::string(8000, 'n')}, at::ones({1}));
    {
      const FileSizeLimit limit(4000);
      expect_error(Code::kIo, {"fsdp2_manifest", "File too large"},  // finishing
                   [&] { save_state(world, long_name, {path("run")}); });
    }
  });
  EXPECT_EQ(files(), std::vector<std::string>{"file"});
}

// Saves 16 rows on four ranks, four on each, into "run".
void save_four_parts(const std::string& path) {
  run_ranks(4, [&](const WorldPtr& world) {
    save_state(world, state_of(sixteen_rows(), kFlatSharded, world->rank()), {path});
  });
}

// What a load on four ranks ends with, by rank.
std::vector<Error> errors_of_a_load(const std::string& path) {
  std::vector<Error> errors(4, Error(Code::kInternal, ""));
  run_ranks(4, [&](const WorldPtr& world) {
    StateDict state = state_of(at::zeros_like(sixteen_rows()), kFlatSharded, world->rank());
    errors[static_cast<size_t>(world->rank())] =
        error_of([&] { ckpt::load_state(*world, path, &state); });
    world->control().barrier();  // the world is usable
  });
  return errors;
}

void expect_on_all(const std::vector<Error>& errors, Code code, const std::string& word) {
  for (const Error& error : errors) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
}

TEST_F(ChecklistCkpErrors, CKP15_MissingMetadataIsAnErrorOnAllRanks) {
  save_four_parts(path("run"));
  std::filesystem::remove(path("run/.metadata"));
  expect_on_all(errors_of_a_load(path("run")), Code::kCorruptData, ".metadata");
}

TEST_F(ChecklistCkpErrors, CKP15_AFileOfOneRankThatIsMissingOrShortIsAnErrorOnAllRanks) {
  save_four_parts(path("run"));
  const std::string file = path("run/__3_0.distcp");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  expect_on_all(errors_of_a_load(path("run")), Code::kCorruptData, "__3_0.distcp");
  std::filesystem::remove(file);
  expect_on_all(errors_of_a_load(path("run")), Code::kCorruptData, "__3_0.distcp");
}

TEST_F(ChecklistCkpErrors, CKP15_DamageThatOneRankMeetsIsToldToAllWithItsNumber) {
  save_four_parts(path("run"));
  const std::string file = path("run/__3_0.distcp");
  std::string bytes = contents(file);
  bytes[bytes.size() / 2] ^= 1;
  write("run/__3_0.distcp", bytes);
  const std::vector<Error> errors = errors_of_a_load(path("run"));
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank].code(), rank == 3 ? Code::kCorruptData : Code::kPeerFailed);
    EXPECT_NE(errors[rank].message().find("__3_0.distcp"), std::string::npos);
    EXPECT_TRUE(rank == 3 || errors[rank].message().find("rank 3") != std::string::npos)
        << errors[rank].message();
  }
}

TEST_F(ChecklistCkpErrors, CKP21_ASecondSaveReplacesTheFirstOrIsRefused) {
  run_ranks(2, [&](const WorldPtr& world) {
    const Rows rows = Placing{{2}, "S"}.rows_of(world->rank(), 16);
    const at::Tensor first = sixteen_rows();
    const at::Tensor second = first + 100;
    save_state(world, state_of(first, rows), {path("run")});
    save_state(world, state_of(second, rows), {path("run")});
    expect_rows_load(world, path("run"), second, rows);
    ckpt::ShardedSaveOptions careful{path("run")};
    careful.overwrite = false;
    expect_error(world->rank() == 0 ? Code::kIo : Code::kPeerFailed,
                 {path("run"), "already exists"},
                 [&] { save_state(world, state_of(first, rows), careful); });
    expect_rows_load(world, path("run"), second, rows);
    careful.path = path("other");
    save_state(world, state_of(first, rows), careful);
    expect_rows_load(world, path("other"), first, rows);
  });
}

}  // namespace
}  // namespace fsdp2::checklist
