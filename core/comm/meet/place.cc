#include "core/comm/meet/place.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

constexpr int kMaxRanks = std::numeric_limits<int>::max();
constexpr int kMaxFakeRanks = 1 << 20;  // meshes list their ranks, so each costs time and memory
constexpr const char* kDefaultPort = "29500";  // PyTorch's

int parse(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  FSDP2_CHECK(whole && low <= value && value <= high, Code::kInvalidArgument,
              "{}='{}': expected a whole number from {} to {}", name, text, low, high);
  return value;
}

// A number together with where it came from, for messages.
struct Number {
  std::string source;
  int value = -1;
  bool known() const { return value >= 0; }
};

Number from_variable(const Environment& environment, const char* name, int low) {
  const auto text = environment(name);
  return text ? Number{name, parse(name, *text, low, kMaxRanks)} : Number{name};
}

struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
};

constexpr Launcher kEnv{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Launcher kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Launcher kSlurm{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

const Launcher* find_launcher(const Environment& environment) {
  if (environment(kEnv.rank) || environment(kEnv.size)) {
    return &kEnv;
  }
  for (const Launcher* launcher : {&kOpenMpi, &kSlurm}) {
    if (environment(launcher->rank)) {
      return launcher;
    }
  }
  return nullptr;
}

// The option if there is one, else the variable; under env:// they may not contradict each other.
Number choose(const char* option, int asked, const Number& found, bool may_differ) {
  if (asked < 0) {
    return found;
  }
  FSDP2_CHECK(may_differ || !found.known() || found.value == asked, Code::kInvalidArgument,
              "{} {} was asked for, but the environment says {}={}", option, asked, found.source,
              found.value);
  return {option, asked};
}

void set_numbers(const WorldOptions& options, const Environment& environment, bool from_environment,
                 Place* place) {
  const std::array<std::pair<const char*, int>, 3> asked{{{"rank", options.rank},
                                                          {"world_size", options.world_size},
                                                          {"local_rank", options.local_rank}}};
  for (const auto& [name, value] : asked) {
    FSDP2_CHECK(value >= -1, Code::kInvalidArgument, "{} is {}: expected -1 (not given), 0 or more",
                name, value);
  }
  FSDP2_CHECK(options.world_size != 0, Code::kInvalidArgument,
              "world_size is 0: expected at least one rank");
  const bool given = !from_environment && options.rank >= 0 && options.world_size >= 0;
  const Launcher* launcher = given ? nullptr : find_launcher(environment);
  Number rank, size, local_rank;
  if (launcher != nullptr) {
    rank = from_variable(environment, launcher->rank, 0);
    size = from_variable(environment, launcher->size, 1);
    local_rank = from_variable(environment, launcher->local_rank, 0);
  }
  rank = choose("rank", options.rank, rank, !from_environment);
  size = choose("world_size", options.world_size, size, !from_environment);
  local_rank = choose("local_rank", options.local_rank, local_rank, true);
  FSDP2_CHECK(rank.known() || size.value <= 1, Code::kInvalidArgument,
              "{}={} without a rank: set {} too", size.source, size.value,
              size.source == kEnv.size ? kEnv.rank : "rank");
  FSDP2_CHECK(size.known() || !rank.known(), Code::kInvalidArgument,
              "{}={} without a number of ranks: set {} too", rank.source, rank.value,
              launcher == nullptr || rank.source == "rank" ? "world_size" : launcher->size);
  place->rank = rank.known() ? rank.value : 0;
  place->size = size.known() ? size.value : 1;
  place->local_rank = local_rank.known() ? local_rank.value : place->rank;
  FSDP2_CHECK(place->rank < place->size, Code::kInvalidArgument,
              "{}={} is not a rank of {}={} (ranks start at 0)", rank.source, place->rank,
              size.source, place->size);
}

// "node01,node02" and "node[01-04,09]" begin with node01.
std::string first_of_node_list(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t end = list.find(',');
  if (bracket == std::string::npos || end < bracket) {
    return list.substr(0, end);
  }
  const size_t number = bracket + 1;
  return list.substr(0, bracket) + list.substr(number, list.find_first_of(",-]", number) - number);
}

// "[fd00::1]" is fd00::1, as in a URL.
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']'
             ? host.substr(1, host.size() - 2)
             : host;
}

std::string find_master(const Place& place, const Environment& environment) {
  if (const auto address = environment("MASTER_ADDR"); address && !address->empty()) {
    return without_brackets(*address);
  }
  const auto local_size = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local_size && *local_size == environment(kOpenMpi.size)) {
    return "127.0.0.1";
  }
  if (const auto nodes = environment("SLURM_STEP_NODELIST"); nodes && !nodes->empty()) {
    return first_of_node_list(*nodes);
  }
  fail(Code::kInvalidArgument,
       "MASTER_ADDR is not set: {} ranks need the address of rank 0's machine to meet at",
       place.size);
}

// Slurm puts jobs side by side on one node, so each has a port of its own there.
std::string default_port(const Environment& environment) {
  constexpr int kFirst = 20000;  // below what systems give to clients
  constexpr int kPorts = 10000;
  const auto job = environment("SLURM_JOB_ID");
  const auto step = environment("SLURM_STEP_ID");
  if (!job || !step || !environment(kSlurm.rank)) {
    return kDefaultPort;
  }
  const int64_t number = int64_t{7} * parse("SLURM_JOB_ID", *job, 0, kMaxRanks) +
                         parse("SLURM_STEP_ID", *step, 0, kMaxRanks);
  return std::to_string(kFirst + number % kPorts);
}

void set_meeting_by_environment(const Environment& environment, Place* place) {
  place->where = find_master(*place, environment);
  const std::string port = environment("MASTER_PORT").value_or(default_port(environment));
  place->port = static_cast<uint16_t>(parse("MASTER_PORT", port, 1, 65535));
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    place->launcher_hosts_store = true;
    place->key_prefix = "attempt" + environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  }
}

void set_meeting_by_tcp(const std::string& url, const std::string& address, Place* place) {
  const size_t colon = address.rfind(':');
  FSDP2_CHECK(colon != std::string::npos && colon > 0, Code::kInvalidArgument,
              "rendezvous '{}': expected tcp://host:port", url);
  place->where = without_brackets(address.substr(0, colon));
  place->port = static_cast<uint16_t>(
      parse("port in rendezvous " + url, address.substr(colon + 1), 1, 65535));
}

void set_fake(const WorldOptions& options, const std::string& url, Place* place) {
  FSDP2_CHECK(options.backend == BackendKind::kAuto || options.backend == BackendKind::kFake,
              Code::kInvalidArgument, "rendezvous '{}': only backend fake meets there", url);
  FSDP2_CHECK(options.rendezvous.empty() || options.rendezvous == "fake://", Code::kInvalidArgument,
              "rendezvous '{}': ranks of backend fake meet nowhere; leave it empty", url);
  FSDP2_CHECK(options.world_size >= 1 && options.world_size <= kMaxFakeRanks,
              Code::kInvalidArgument,
              "backend fake: expected an explicit world_size from 1 to {}, got {}", kMaxFakeRanks,
              options.world_size);
  WorldOptions numbers = options;
  numbers.rank = std::max(options.rank, 0);
  const Environment none = [](const char*) { return std::nullopt; };
  set_numbers(numbers, none, false, place);
  place->meeting = Meeting::kFake;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Place find_place(const WorldOptions& options, const Environment& environment) {
  const std::string url = options.rendezvous.empty() ? "env://" : options.rendezvous;
  const size_t scheme_end = url.find("://");
  FSDP2_CHECK(scheme_end != std::string::npos, Code::kInvalidArgument,
              "rendezvous '{}': expected env://, tcp://host:port, file:///path, thread://name or "
              "fake://",
              url);
  const std::string scheme = url.substr(0, scheme_end);
  const std::string rest = url.substr(scheme_end + 3);
  Place place;
  if (scheme == "fake" || options.backend == BackendKind::kFake) {
    set_fake(options, url, &place);
    return place;
  }
  if (scheme == "env") {
    set_numbers(options, environment, true, &place);
    place.meeting = Meeting::kTcp;
    if (place.size > 1) {
      set_meeting_by_environment(environment, &place);
    }
  } else if (scheme == "tcp") {
    set_numbers(options, environment, false, &place);
    place.meeting = Meeting::kTcp;
    set_meeting_by_tcp(url, rest, &place);
  } else if (scheme == "file") {
    FSDP2_CHECK(rest.size() > 1 && rest.front() == '/', Code::kInvalidArgument,
                "rendezvous '{}': expected an absolute path, file:///path", url);
    set_numbers(options, environment, false, &place);
    place.meeting = Meeting::kFile;
    place.where = rest;
  } else if (scheme == "thread") {
    FSDP2_CHECK(!rest.empty(), Code::kInvalidArgument, "rendezvous '{}': expected thread://name",
                url);
    FSDP2_CHECK(options.rank >= 0 && options.world_size >= 0, Code::kInvalidArgument,
                "rendezvous '{}': ranks as threads need an explicit rank and world_size", url);
    set_numbers(options, environment, false, &place);
    place.meeting = Meeting::kThreads;
    place.where = rest;
  } else {
    fail(Code::kInvalidArgument,
         "rendezvous '{}': unknown scheme '{}', expected env, tcp, file, thread or fake", url,
         scheme);
  }
  if (place.size == 1) {
    place.meeting = Meeting::kNowhere;
  }
  return place;
}

}  // namespace fsdp2
