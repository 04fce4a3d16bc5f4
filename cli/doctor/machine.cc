#include "cli/doctor/machine.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>

#include "cli/machine/size_text.h"

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMiB = 1024.0 * 1024.0;

Finding shared_memory() {
  Finding finding{"shared memory"};
  struct statvfs status{};
  if (statvfs("/dev/shm", &status) != 0) {
    finding.verdict = Verdict::kFailed;
    finding.found = std::string("/dev/shm: ") + std::strerror(errno);
    finding.remedy =
        "mount a tmpfs there; without it ranks talk over sockets, several times slower";
    return finding;
  }
  const double total = static_cast<double>(status.f_blocks) * static_cast<double>(status.f_frsize);
  const double free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  finding.found = "/dev/shm has " + size_text(free) + " free of " + size_text(total);
  constexpr double kDockers = 64 * kMiB;  // what a container gets unless one asks for more
  if (access("/dev/shm", W_OK) != 0) {
    finding.verdict = Verdict::kFailed;
    finding.found += ", and cannot be written: " + std::string(std::strerror(errno));
    finding.remedy = "give this user the right to write there";
  } else if (free <= kDockers) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "give the container more (docker run --shm-size=8g): ranks of one machine move parameters "
        "and gradients through it";
  }
  return finding;
}

// A connection to a port of this machine that the system chooses, as ranks that meet make it.
std::string fault_of_loopback() {
  const auto fault = [](const char* what) { return std::string(what) + std::strerror(errno); };
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string found;
  if (server < 0 || client < 0) {
    found = fault("no socket: ");
  } else if (bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
             listen(server, 1) != 0 ||
             getsockname(server, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    found = fault("127.0.0.1 gives no port to listen at: ");
  } else if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    found = fault("127.0.0.1 takes no connection: ");
  }
  close(client);
  close(server);
  return found;
}

// Whether anyone listens at the port that launchers take unless they are told another.
bool is_default_port_free() {
  constexpr uint16_t kDefaultPort = 29500;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kDefaultPort);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  const bool is_free = bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                       listen(server, 1) == 0;
  close(server);
  return is_free;
}

Finding ports() {
  Finding finding{"ports"};
  finding.found = fault_of_loopback();
  if (!finding.found.empty()) {
    finding.verdict = Verdict::kFailed;
    finding.remedy =
        "ranks of one machine meet there: bring the loopback interface up (ip link set lo up)";
  } else if (!is_default_port_free()) {
    finding.verdict = Verdict::kWarning;
    finding.found = "127.0.0.1 works; port 29500 is taken";
    finding.remedy =
        "jobs over several machines, and torchrun, use it by default: name another (--master-port)";
  } else {
    finding.found = "127.0.0.1 works; port 29500, the default over several machines, is free";
  }
  return finding;
}

// Ranks look up MASTER_ADDR, which often is this machine's name.
Finding name_service() {
  Finding finding{"name service"};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) {
    std::strcpy(host.data(), "localhost");
  }
  const auto start = Clock::now();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.data(), nullptr, &hints, &found);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string took = " after " + number_text(seconds, 3) + " s";
  if (error != 0) {
    finding.verdict = Verdict::kWarning;
    finding.found =
        std::string(host.data()) + ", this machine's name: " + gai_strerror(error) + took;
    finding.remedy = "add it to /etc/hosts, or give jobs an address by --master-addr";
    return finding;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0,
              NI_NUMERICHOST);
  freeaddrinfo(found);
  finding.found = std::string(host.data()) + " is " + text.data() + took;
  if (seconds > 1) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "each rank waits so long when it starts: look at /etc/resolv.conf";
  }
  return finding;
}

// What ranks wait for is measured by a clock that nobody sets; this one is in logs and traces.
Finding wall_clock() {
  Finding finding{"clock"};
  timex state{};
  const int status = adjtimex(&state);
  std::array<char, 64> text{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  finding.found = text.data();
  constexpr int kEarliest = 2025 - 1900;
  if (utc.tm_year < kEarliest) {
    finding.verdict = Verdict::kFailed;
    finding.remedy = "set the clock: certificates and build tools go by it";
  } else if (status == TIME_ERROR || (state.status & STA_UNSYNC) != 0) {
    finding.found += ", not synchronised, as far as the kernel knows";
    finding.remedy =
        "matters on several machines, whose logs and traces are put side by side: run chrony";
  }
  return finding;
}

}  // namespace

Findings look_at_machine() { return {shared_memory(), ports(), name_service(), wall_clock()}; }

}  // namespace fsdp2::cli
