#include "tests/support/ranks.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"

extern char** environ;

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRankVariable = "FSDP2_TEST_RANK";
constexpr const char* kMeetingVariable = "FSDP2_TEST_MEETING";
constexpr const char* kByFile = "file://";
constexpr std::chrono::seconds kLimit{240};
constexpr std::chrono::seconds kStart{90};  // for all programs of a test
constexpr std::chrono::milliseconds kShortTimeout{400};
constexpr std::chrono::milliseconds kLongTimeout{20000};
constexpr const char* kSecondsLabel = "seconds in the world: ";

// The first error, but rather a cause than the news of it on another rank.
class FirstError {
 public:
  void offer(const std::exception_ptr& error, Code code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr || (code_ == Code::kPeerFailed && code != Code::kPeerFailed)) {
      error_ = error;
      code_ = code;
    }
  }
  void rethrow() const {
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  Code code_ = Code::kInternal;
};

void run_body(const std::shared_ptr<World>& world, const RankBody& body) {
  try {
    body(world);
  } catch (...) {
    world->failure().publish(current_exception_text());
    throw;
  }
}

// Time-outs are for ranks that wait for each other, and not for programs that a busy machine is
// slow to start.
void wait_until_all_have_started(int rank, int size) {
  const auto note = [](int of) { return folder_of_ranks() + "/started" + std::to_string(of); };
  std::ofstream(note(rank)) << "";
  const auto start = Clock::now();
  for (int other = 0; other < size; ++other) {
    while (!std::filesystem::exists(note(other))) {
      FSDP2_CHECK(Clock::now() - start < kStart, Code::kTimeout, "rank {} has not started", other);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

[[noreturn]] void be_a_rank(int rank, int size, const RankBody& body, const RankOptions& options) {
  WorldOptions world_options;
  world_options.backend = options.backend;
  world_options.timeout = options.timeout;
  world_options.rendezvous = std::getenv(kMeetingVariable);
  world_options.rank = rank;
  world_options.world_size = size;
  int code = 0;
  at::set_num_threads(1);
  Clock::time_point joined;
  try {
    wait_until_all_have_started(rank, size);
    auto world = World::join(world_options);
    joined = Clock::now();
    run_body(std::exchange(world, nullptr), body);
  } catch (...) {
    std::fprintf(stderr, "rank %d: %s\n", rank, current_exception_text().c_str());
    code = 2;
  }
  std::printf("%s%f\n", kSecondsLabel,
              std::chrono::duration<double>(Clock::now() - joined).count());
  std::exit(testing::Test::HasFailure() ? 1 : code);
}

std::string read_all(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The environment of a rank. What tells a test program where to report is left out: the program
// that started the ranks reports.
std::vector<std::string> rank_environment(int rank, const std::string& meeting) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("TEST_", 0) != 0 && text.rfind("GTEST_", 0) != 0 &&
        text.rfind("XML_OUTPUT_FILE=", 0) != 0) {
      result.push_back(text);
    }
  }
  result.push_back(std::string(kRankVariable) + "=" + std::to_string(rank));
  result.push_back(std::string(kMeetingVariable) + "=" + meeting);
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(int rank, const std::string& meeting, const std::string& output) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> arguments{
      "/proc/self/exe",
      std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name()};
  std::vector<std::string> environment = rank_environment(rank, meeting);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &files, nullptr,
                                pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&files);
  FSDP2_CHECK(error == 0, Code::kInternal, "cannot start rank {}: error {}", rank, error);
  return pid;
}

RankEnd end_of(int status, std::string output) {
  RankEnd end;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.output = std::move(output);
  const size_t label = end.output.rfind(kSecondsLabel);
  if (label != std::string::npos) {
    end.seconds = std::stod(end.output.substr(label + std::strlen(kSecondsLabel)));
  }
  return end;
}

}  // namespace

void run_ranks(int size, const RankBody& body, const RankOptions& options) {
  static std::atomic<int> runs{0};
  const std::string meeting = "thread://run" + std::to_string(runs++);
  FirstError first;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        run_body(World::join({options.backend, meeting, rank, size, rank, options.timeout}), body);
      } catch (...) {
        first.offer(std::current_exception(), current_exception_as_error().code());
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  first.rethrow();
}

std::chrono::milliseconds run_ranks_to_the_time_out(int size, const RankBody& prepare,
                                                    const RankBody& body, BackendKind backend) {
  for (const auto timeout : {kShortTimeout, kLongTimeout}) {
    std::atomic<int> ready{0};
    const auto noted = [&](const std::shared_ptr<World>& world) {
      prepare(world);
      ++ready;
      body(world);
    };
    try {
      run_ranks(size, noted, {backend, timeout});
      return timeout;
    } catch (const Error&) {
      // A connection that is late is not always told as a time-out.
      if (ready == size || timeout == kLongTimeout) {
        throw;
      }
    }
  }
  fail(Code::kInternal, "no time-out was long enough");
}

std::vector<RankEnd> spawn_ranks(int size, const RankBody& body, const RankOptions& options) {
  if (const char* rank = std::getenv(kRankVariable)) {
    be_a_rank(std::atoi(rank), size, body, options);
  }
  std::string folder = testing::TempDir() + "/ranksXXXXXX";
  FSDP2_CHECK(mkdtemp(folder.data()) != nullptr, Code::kIo, "cannot make the folder {}", folder);
  const auto output = [&](int rank) { return folder + "/output" + std::to_string(rank); };
  const std::string meeting = kByFile + folder + "/meeting";
  const auto start = Clock::now();
  std::vector<pid_t> running;
  for (int rank = 0; rank < size; ++rank) {
    running.push_back(spawn(rank, meeting, output(rank)));
  }
  std::vector<RankEnd> ends(size);
  std::set<int> stopped;
  for (int left = size; left > 0;) {
    const bool over = Clock::now() - start > kLimit || left == static_cast<int>(stopped.size());
    for (int rank = 0; rank < size; ++rank) {
      if (running[rank] == 0) {
        continue;
      }
      if (over) {
        kill(running[rank], SIGKILL);
      }
      int status = 0;
      if (waitpid(running[rank], &status, over ? 0 : WNOHANG | WUNTRACED) != running[rank]) {
        continue;
      }
      if (WIFSTOPPED(status)) {
        stopped.insert(rank);
        continue;
      }
      running[rank] = 0;
      --left;
      ends[rank] = end_of(status, read_all(output(rank)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::filesystem::remove_all(folder);
  return ends;
}

std::string folder_of_ranks() {
  const char* const meeting = std::getenv(kMeetingVariable);
  FSDP2_CHECK(meeting != nullptr, Code::kWrongState, "only ranks that were spawned have a folder");
  return std::filesystem::path(meeting + std::strlen(kByFile)).parent_path();
}

void stay_until_told(const World& world, const std::vector<int>& ranks) {
  const auto note = [](int rank) { return folder_of_ranks() + "/told" + std::to_string(rank); };
  std::ofstream(note(world.rank())) << "";
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  for (const int other : ranks) {
    while (world.rank() == 0 && !std::filesystem::exists(note(other)) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

void run_rank_processes(int size, const RankBody& body, const RankOptions& options) {
  const auto ends = spawn_ranks(size, body, options);
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(ends[rank].exit_code, 0)
        << "rank " << rank << ", signal " << ends[rank].signal << ":\n"
        << ends[rank].output;
  }
}

}  // namespace fsdp2
