#include "cli/doctor/libraries.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "cli/machine/child_program.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

constexpr double kPatience = 120;  // seconds: a cold disk reads 500 MB first

using Description = std::map<std::string, std::string>;

// The "key: value" lines that the library describes itself by.
Description description_in(const std::string& text) {
  Description description;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) {
      description[line.substr(0, colon)] = line.substr(colon + 2);
    }
  }
  return description;
}

// Where the system's loader finds a library for a program: "" if it does not.
std::string place_of_library(const std::string& program, const std::string& name) {
  const ChildEnd loader = run_child({program}, {{"LD_TRACE_LOADED_OBJECTS", "1"}}, kPatience);
  const size_t at = loader.out.find(name + " => ");
  if (at == std::string::npos) {
    return "";
  }
  const size_t begin = at + name.size() + 4;
  const std::string place =
      loader.out.substr(begin, loader.out.find_first_of(" \n", begin) - begin);
  return place == "not" ? "" : place;
}

std::set<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) {
      std::istringstream words(line);
      std::set<std::string> flags;
      for (std::string word; words >> word;) {
        flags.insert(word);
      }
      return flags;
    }
  }
  return {};
}

Finding libtorch(const std::string& trainer, const ChildEnd& version,
                 const Description& description, const std::string& place) {
  Finding finding{"LibTorch"};
  if (version.exit_code != 0) {
    std::error_code error;
    finding.verdict = Verdict::kFailed;
    finding.found = version.last_words();
    finding.remedy = fs::exists(trainer, error)
                         ? "install LibTorch where bindings/README.md says that it is looked for, "
                           "or add its folder to LD_LIBRARY_PATH"
                         : "install fsdp2 anew: its programs belong beside each other";
    return finding;
  }
  finding.found =
      (description.count("libtorch") > 0 ? description.at("libtorch") : "of an unknown version") +
      " in " + fs::path(place).parent_path().string();
  return finding;
}

Finding processor(const Description& description) {
  const std::set<std::string> flags = processor_flags();
  Finding finding{"processor"};
  for (const auto& [flag, name] :
       {std::make_pair("avx2", "AVX2"), std::make_pair("avx512f", "AVX-512"),
        std::make_pair("avx512_bf16", "AVX-512 for bf16"),
        std::make_pair("amx_bf16", "AMX for bf16")}) {
    const bool has_it = flags.count(flag) > 0;
    finding.found += (finding.found.empty() ? "" : ", ") + std::string(has_it ? "" : "no ") + name;
  }
  finding.found += "; LibTorch computes with " + description.at("cpu");
  if (flags.count("avx2") == 0) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "fp32 is several times slower without AVX2: is this a virtual machine that "
        "hides it?";
  } else if (flags.count("avx512_bf16") + flags.count("amx_bf16") == 0) {
    finding.found += "; bf16 saves memory here, not time";
  }
  return finding;
}

Finding products(const Description& description) {
  return {"products", Verdict::kOk, description.at("product_engine")};
}

bool has_driver() { return fs::exists("/proc/driver/nvidia/version"); }

size_t n_devices() {
  size_t n = 0;
  while (fs::exists("/dev/nvidia" + std::to_string(n))) {
    ++n;
  }
  return n;
}

bool can_open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    return false;
  }
  dlclose(handle);
  return true;
}

// Beside libfsdp2.so, which opens it when a mesh is to be on GPUs.
Finding plugin(const std::string& library) {
  const fs::path file = fs::path(library).parent_path() / "libfsdp2_cuda.so";
  std::error_code error;
  Finding finding{"NCCL"};
  if (fs::exists(file, error)) {
    finding.found = "libfsdp2_cuda.so, which has it, is in " + file.parent_path().string();
    return finding;
  }
  finding.verdict = Verdict::kWarning;
  finding.found = file.string() + ", which would bring NCCL, is not there";
  finding.remedy =
      "build it (./bazelw build --config=cuda //:libfsdp2_cuda.so) and put it there, or "
      "name it by FSDP2_CUDA_LIBRARY";
  return finding;
}

}  // namespace

Findings look_at_libraries(const std::string& trainer) {
  const ChildEnd version = run_child({trainer, "--version"}, {}, kPatience);
  const Description description = description_in(version.out);
  const bool is_known = version.exit_code == 0 && description.count("libtorch") > 0 &&
                        description.count("cpu") > 0 && description.count("product_engine") > 0;
  const std::string place = place_of_library(trainer, "libtorch_cpu.so");
  Findings findings = {libtorch(trainer, version, description, place)};
  if (is_known) {
    findings.push_back(processor(description));
    findings.push_back(products(description));
  }
  return findings;
}

Findings look_at_gpus(const std::string& trainer) {
  Finding gpus{"GPUs"};
  const size_t n = n_devices();
  if (!has_driver() && n == 0) {
    gpus.found = "none: jobs run on the CPU";
    return {gpus};
  }
  gpus.found = std::to_string(n) + (n == 1 ? " device of NVIDIA's" : " devices of NVIDIA's");
  if (n == 0) {
    gpus.verdict = Verdict::kWarning;
    gpus.found += ", though there is a driver";
    gpus.remedy = "give the container its devices (docker run --gpus all)";
  } else if (!can_open("libcuda.so.1")) {
    gpus.verdict = Verdict::kWarning;
    gpus.found += ", but libcuda.so.1 cannot be opened";
    gpus.remedy = "install the driver's libraries, or the container toolkit of NVIDIA's";
  }
  return {gpus, plugin(place_of_library(trainer, "libfsdp2.so.0"))};
}

}  // namespace fsdp2::cli
