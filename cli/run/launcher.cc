#include "cli/run/launcher.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/run/command.h"
#include "cli/run/environment.h"
#include "cli/run/output.h"
#include "cli/run/rank_process.h"
#include "cli/run/rendezvous.h"
#include "cli/run/room.h"
#include "cli/run/signals.h"
#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Once a rank has failed, the others have this long to notice it and to say what they saw, which on
// a machine that is busy may stand still for seconds ...
constexpr milliseconds kNoticeTime{8000};
// ... and after SIGTERM this long to end.
constexpr milliseconds kGraceTime{5000};
// How long the launcher waits for output after the last rank has ended, if a process that the rank
// left behind holds the other end.
constexpr milliseconds kDrainTime{500};

class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options) {}

  int run(const std::string& file);

 private:
  enum class Phase { kRunning, kFailed, kTerminated, kKilled, kDraining };

  void start(const std::string& file);
  void start_one(int local_rank, const std::string& file, const std::vector<int>& cores, int port);
  void reap();
  void ended(int local_rank, int status);
  void stopped(size_t local_rank, int number);
  void kill_stopped();
  void escalate();
  void pump();
  bool streams_open() const;
  void enter(Phase phase, milliseconds stay);
  void say(const std::string& text);

  const RunOptions& options_;
  Screen screen_;
  std::optional<ReservedPort> port_;
  std::vector<RankStream> streams_;
  std::vector<pid_t> pids_;    // 0: has ended
  std::vector<bool> stopped_;  // by a signal; such a rank neither notices a failure nor ends
  int running_ = 0;
  Phase phase_ = Phase::kRunning;
  Clock::time_point leave_phase_ = Clock::time_point::max();
  int exit_code_ = 0;
};

void do_nothing(int) {}

// A write to a pipe that nobody reads any more, or beyond ulimit -f, fails and does not end the
// launcher. To ignore the signals would be to have all ranks ignore them.
void let_writes_fail() {
  for (const int number : {SIGPIPE, SIGXFSZ}) {
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {
      before = {};
      before.sa_handler = do_nothing;
      sigaction(number, &before, nullptr);
    }
  }
}

int Job::run(const std::string& file) {
  let_writes_fail();
  // SIGCHLD ends the wait in pump() and is held back everywhere else.
  struct sigaction wake{};
  wake.sa_handler = do_nothing;
  sigaction(SIGCHLD, &wake, nullptr);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);

  forward_signals(static_cast<size_t>(options_.nproc_per_node));
  start(file);
  while (running_ > 0 || streams_open()) {
    pump();
    reap();
    escalate();
  }
  screen_.set_status("");
  if (screen_.lost_output() != 0) {
    say(std::string("standard output: ") + std::strerror(screen_.lost_output()) +
        "; it does not have all that the ranks printed");
    exit_code_ = exit_code_ == 0 ? 1 : exit_code_;
  }
  return exit_code_;
}

void Job::start(const std::string& file) {
  int port = options_.master_port;
  if (port == 0) {
    port_.emplace();
    port = port_->number();
  }
  const std::vector<int> cores = usable_cores();
  pids_.resize(static_cast<size_t>(options_.nproc_per_node));
  stopped_.resize(pids_.size());
  for (int i = 0; i < options_.nproc_per_node; ++i) {
    try {
      start_one(i, file, cores, port);
    } catch (const std::system_error& error) {
      say("rank " + std::to_string(options_.rank(i)) + ": " + error.what() + "; ending the job");
      signal_ranks(SIGKILL);
      exit_code_ = 1;
      enter(Phase::kKilled, kGraceTime);
      return;
    }
  }
}

void Job::start_one(int local_rank, const std::string& file, const std::vector<int>& cores,
                    int port) {
  const int rank = options_.rank(local_rank);
  const std::string prefix = "[rank " + std::to_string(rank) + "] ";
  const bool has_status = local_rank == 0;
  const int columns = has_status ? screen_.columns() - static_cast<int>(prefix.size()) : 0;
  const cpu_set_t own_cores = cores_of_rank(cores, local_rank, options_.nproc_per_node);

  RankCommand command;
  command.file = file;
  command.arguments = options_.command;
  command.environment =
      rank_environment(options_, port, local_rank, static_cast<int>(cores.size()), columns);
  command.cores = options_.bind_cores ? &own_cores : nullptr;
  command.inherits_stdin = rank == 0 && !is_terminal(STDIN_FILENO);

  const SignalsHeld held;
  command.signals = held.before();
  sigdelset(&command.signals, SIGCHLD);
  const RankProcess process = start_rank(command);
  pids_[static_cast<size_t>(local_rank)] = process.pid;
  set_rank_process(static_cast<size_t>(local_rank), process.pid);
  ++running_;

  const bool on_terminal = screen_.is_terminal(STDOUT_FILENO);
  const bool unchanged = rank == 0 && !on_terminal;
  const int out = rank == 0 || on_terminal ? STDOUT_FILENO : STDERR_FILENO;
  streams_.emplace_back(&screen_, process.out, out, unchanged ? "" : prefix, has_status);
  streams_.emplace_back(&screen_, process.err, STDERR_FILENO, prefix, has_status);
}

// Passes on what ranks print until there is something else to do.
void Job::pump() {
  std::vector<pollfd> sources;
  std::vector<RankStream*> readers;
  for (RankStream& stream : streams_) {
    if (stream.source() >= 0) {
      sources.push_back({stream.source(), POLLIN, 0});
      readers.push_back(&stream);
    }
  }
  timespec wait{};
  const bool timed = leave_phase_ != Clock::time_point::max();
  if (timed) {
    const auto left = std::max(Clock::duration::zero(), leave_phase_ - Clock::now());
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    wait.tv_sec = ns / 1000000000;
    wait.tv_nsec = ns % 1000000000;
  }
  sigset_t let_child_through;
  sigprocmask(SIG_BLOCK, nullptr, &let_child_through);
  sigdelset(&let_child_through, SIGCHLD);
  if (ppoll(sources.data(), sources.size(), timed ? &wait : nullptr, &let_child_through) > 0) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].revents != 0) {
        readers[i]->pump();
      }
    }
  }
}

void Job::reap() {
  for (size_t i = 0; i < pids_.size(); ++i) {
    const SignalsHeld held;  // a pid must not be signalled once another process may have it
    int status = 0;
    if (pids_[i] == 0 || waitpid(pids_[i], &status, WNOHANG | WUNTRACED | WCONTINUED) != pids_[i]) {
      continue;
    }
    if (WIFSTOPPED(status)) {
      stopped(i, WSTOPSIG(status));
      continue;
    }
    if (WIFCONTINUED(status)) {
      stopped_[i] = false;
      continue;
    }
    stopped_[i] = false;
    set_rank_process(i, 0);
    pids_[i] = 0;
    --running_;
    ended(static_cast<int>(i), status);
  }
  if (running_ == 0 && phase_ != Phase::kDraining) {
    enter(Phase::kDraining, kDrainTime);
  }
}

void Job::ended(int local_rank, int status) {
  const bool by_signal = WIFSIGNALED(status);
  const int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
  if ((!by_signal && number == 0) || phase_ != Phase::kRunning) {
    return;
  }
  if (by_signal && number == SIGKILL && is_insisted_on()) {
    exit_code_ = 128 + SIGINT;
    say("SIGINT came twice: the ranks are killed");
    enter(Phase::kKilled, kGraceTime);
    return;
  }
  exit_code_ = by_signal ? 128 + number : number;
  std::string text = "rank " + std::to_string(options_.rank(local_rank));
  text += by_signal
              ? " was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")"
              : " failed with exit code " + std::to_string(number);
  if (by_signal && number == SIGKILL) {
    text += ", which the system sends when memory runs out (see dmesg)";
  }
  say(text + (running_ > 0 ? "; ending the others" : ""));
  enter(Phase::kFailed, kNoticeTime);
  kill_stopped();
}

void Job::stopped(size_t local_rank, int number) {
  stopped_[local_rank] = true;
  if (phase_ != Phase::kRunning) {
    kill_stopped();
    return;
  }
  say("rank " + std::to_string(options_.rank(static_cast<int>(local_rank))) +
      " was stopped by signal " + std::to_string(number) + " (" + strsignal(number) +
      "); the others wait for it no longer than their time-out");
}

// To give them time would be in vain.
void Job::kill_stopped() {
  for (size_t i = 0; i < pids_.size(); ++i) {
    if (stopped_[i]) {
      say("rank " + std::to_string(options_.rank(static_cast<int>(i))) +
          " is stopped, and is killed");
      signal_rank(i, SIGKILL);
      stopped_[i] = false;
    }
  }
}

void Job::escalate() {
  if (Clock::now() < leave_phase_) {
    return;
  }
  if (phase_ == Phase::kFailed) {
    signal_ranks(SIGTERM);
    enter(Phase::kTerminated, kGraceTime);
  } else if (phase_ == Phase::kTerminated) {
    say("ranks that do not end are killed");
    signal_ranks(SIGKILL);
    enter(Phase::kKilled, kGraceTime);
  } else if (phase_ == Phase::kDraining) {
    for (RankStream& stream : streams_) {
      stream.drain();
    }
  } else {
    leave_phase_ = Clock::time_point::max();  // killed: all that is left is to wait
  }
}

bool Job::streams_open() const {
  for (const RankStream& stream : streams_) {
    if (stream.source() >= 0) {
      return true;
    }
  }
  return false;
}

void Job::enter(Phase phase, milliseconds stay) {
  phase_ = phase;
  leave_phase_ = Clock::now() + stay;
}

void Job::say(const std::string& text) {
  screen_.write(STDERR_FILENO, "fsdp2 run: " + text + "\n");
}

}  // namespace

int launch(const RunOptions& options) {
  const std::string& name = options.command.front();
  const std::string file = find_command(name);
  if (file.empty()) {
    // As shells tell them apart.
    std::error_code error;
    const bool is_there =
        name.find('/') != std::string::npos && std::filesystem::exists(name, error);
    std::cerr << "fsdp2 run: " << name
              << (!is_there ? ": no such program"
                  : std::filesystem::is_directory(name, error)
                      ? ": is a directory, expected a program"
                      : ": is not executable (chmod +x)")
              << std::endl;
    return is_there ? 126 : 127;
  }
  const std::string lacks = shortage(options.nproc_per_node, room_of_machine());
  if (!lacks.empty()) {
    std::cerr << "fsdp2 run: " << lacks << std::endl;
    return 1;
  }
  try {
    return Job(options).run(file);
  } catch (const std::exception& error) {
    std::cerr << "fsdp2 run: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace fsdp2::cli
