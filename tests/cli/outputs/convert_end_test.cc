// What `fsdp2 convert` leaves when a signal ends it: nothing new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/process.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// Many tensors of zeros, which take no room until somebody has read and written them.
std::string write_large_weights(const std::string& folder) {
  constexpr int64_t kTensors = 256;
  constexpr int64_t kBytes = int64_t{16} << 20;
  std::string header = "{";
  for (int64_t i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "" : ",") + std::string("\"w") + std::to_string(i) +
              "\":{\"dtype\":\"F32\",\"shape\":[4096,1024],\"data_offsets\":[" +
              std::to_string(i * kBytes) + "," + std::to_string((i + 1) * kBytes) + "]}";
  }
  header += "}";
  std::string length;
  for (size_t i = 0; i < 8; ++i) {
    length += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  const std::string path = folder + "/weights.safetensors";
  std::ofstream(path, std::ios::binary) << length << header;
  fs::resize_file(path, fs::file_size(path) + static_cast<uint64_t>(kTensors * kBytes));
  return path;
}

Arguments names_below(const std::string& folder) {
  Arguments names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    names.push_back(fs::relative(entry.path(), folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

int only_child_of(int pid) {
  std::ifstream children("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) +
                         "/children");
  int child = 0;
  children >> child;
  return child;
}

bool has_ended(int pid) {
  siginfo_t end{};
  return waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         end.si_pid == pid;
}

class ConvertThatASignalEnds : public ::testing::Test {
 protected:
  // How a conversion ends that gets the signal once it has begun to write; where a busy machine has
  // held this test up until all was written, the next one. to_child: as the system kills who has
  // most of its memory.
  Outcome outcome(const std::string& to, const Arguments& more, int number, bool to_child = false) {
    const std::string target = folder_ + "/" + to;
    const std::string before = empty_directory() + "/before";
    const auto copy_if_there = [](const std::string& from, const std::string& copy) {
      if (fs::exists(from)) {
        fs::copy(from, copy, fs::copy_options::recursive);
      }
    };
    copy_if_there(target, before);
    Outcome end = one_outcome(target, more, number, to_child);
    for (int i = 0; i < 5 && end.exit_code == 0; ++i) {
      fs::remove_all(target);
      copy_if_there(before, target);
      end = one_outcome(target, more, number, to_child);
    }
    return end;
  }

  Outcome one_outcome(const std::string& target, const Arguments& more, int number, bool to_child) {
    Arguments command = {fsdp2_program(), "convert", weights_, target};
    command.insert(command.end(), more.begin(), more.end());
    Process process(command, {});
    EXPECT_TRUE(comes_true([&] {
      const Arguments names = names_below(folder_);
      return has_ended(process.pid()) ||
             std::any_of(names.begin(), names.end(), [](const std::string& name) {
               return name.find(".tmp-") != std::string::npos;
             });
    }));
    const int receiver = to_child ? only_child_of(process.pid()) : process.pid();
    if (receiver > 0) {  // else the child has ended
      kill(receiver, number);
    }
    return process.wait();
  }

  const std::string folder_ = empty_directory();
  const std::string weights_ = write_large_weights(folder_);
};

TEST_F(ConvertThatASignalEnds, LeavesNothing) {
  const Arguments before = names_below(folder_);
  write_file(folder_ + "/config.json", "{}");
  const std::vector<std::pair<std::string, Arguments>> targets = {
      {"all.pth", {}},
      {"run", {"--format", "dcp"}},
      {"model", {"--format", "model", "--model-config", folder_ + "/config.json"}},
      {"ranks", {"--format", "pth-per-rank", "--ranks", "3"}}};
  for (const auto& [to, more] : targets) {
    EXPECT_EQ(outcome(to, more, SIGTERM).exit_code, 128 + SIGTERM) << to;
    fs::remove(folder_ + "/config.json");
    EXPECT_EQ(names_below(folder_), before) << to;
    write_file(folder_ + "/config.json", "{}");
  }
}

TEST_F(ConvertThatASignalEnds, LeavesTheFilesOfEachRankThatWereThere) {
  fs::create_directory(folder_ + "/ranks");
  write_file(folder_ + "/ranks/fsdp_sharded_cpt0_rank0.pth", "old");
  const Arguments before = names_below(folder_);
  const Outcome end = outcome("ranks", {"--format", "pth-per-rank", "--ranks", "2"}, SIGTERM);
  EXPECT_EQ(end.exit_code, 128 + SIGTERM);
  EXPECT_EQ(names_below(folder_), before);
  EXPECT_EQ(read_file(folder_ + "/ranks/fsdp_sharded_cpt0_rank0.pth"), "old");
}

TEST_F(ConvertThatASignalEnds, LeavesNothingWhereTheSystemKillsIt) {
  const Arguments before = names_below(folder_);
  EXPECT_EQ(outcome("run", {"--format", "dcp"}, SIGKILL, true).exit_code, 128 + SIGKILL);
  EXPECT_EQ(names_below(folder_), before);
}

TEST(Convert, ThatFailsHasTheExitCodeOfItsWork) {
  const std::string folder = empty_directory();
  const Outcome failed = run({fsdp2_program(), "convert", folder + "/no", folder + "/to"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("fsdp2 convert: " + folder + "/no"));
}

}  // namespace
}  // namespace fsdp2::test
