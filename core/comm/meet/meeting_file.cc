#include "core/comm/meet/meeting_file.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"

namespace fsdp2 {

namespace {

constexpr const char* kFirstLine = "libfsdp2 meeting 1";
constexpr int64_t kMaxBytes = 1 << 16;

// The same in all processes of a machine, network namespaces and containers included; empty if the
// kernel does not tell.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Loopback and link-local addresses mean something else on every machine.
std::string reachable_address(const ifaddrs& interface) {
  if (interface.ifa_addr == nullptr || (interface.ifa_flags & IFF_LOOPBACK) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (interface.ifa_addr->sa_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(interface.ifa_addr);
    return inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
  }
  if (interface.ifa_addr->sa_family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr);
    return IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)
               ? ""
               : inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size());
  }
  return "";
}

std::vector<std::string> own_hosts() {
  std::vector<std::string> hosts;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) {
    hosts.emplace_back(name.data());
  }
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (std::string address = reachable_address(*one); !address.empty()) {
        hosts.push_back(std::move(address));
      }
    }
    ::freeifaddrs(interfaces);
  }
  return hosts;
}

std::string random_line() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

// Lines: kFirstLine, a number of its own, the machine, the port, the hosts.
std::string MeetingFile::announce(uint16_t port) const {
  std::error_code none;
  if (std::filesystem::file_size(path_, none) != 0 || none) {  // an empty one keeps a name, no more
    static_cast<void>(find());
  }
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n", kFirstLine, random_line(), machine(), port,
                                 fmt::join(own_hosts(), "\n"));
  AtomicFile file(path_);
  file.write(text.data(), text.size());
  file.commit();
  return text;
}

std::optional<MeetingFile::Listener> MeetingFile::find() const {
  Listener listener;
  try {
    listener.text = read_text_file(path_, kMaxBytes);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) {
      return std::nullopt;
    }
    throw;
  }
  std::istringstream lines(listener.text);
  std::string first, unique, where, port;
  std::getline(lines, first);
  std::getline(lines, unique);
  std::getline(lines, where);
  std::getline(lines, port);
  const char* end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, listener.port);
  FSDP2_CHECK(first == kFirstLine && parsed.ec == std::errc() && parsed.ptr == end, Code::kIo,
              "{}: is not a file that ranks meet at; name one of its own to file://", path_);
  if (!where.empty() && where == machine()) {
    listener.hosts.emplace_back("127.0.0.1");
  }
  for (std::string host; std::getline(lines, host);) {
    listener.hosts.push_back(host);
  }
  return listener;
}

void MeetingFile::remove(const std::string& announced) const noexcept {
  try {
    if (const auto now = find(); now && now->text == announced) {
      static_cast<void>(::unlink(path_.c_str()));
    }
  } catch (const std::exception&) {  // another program's by now
  }
}

}  // namespace fsdp2
