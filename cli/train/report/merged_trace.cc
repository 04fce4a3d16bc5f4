#include "cli/train/report/merged_trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

using Json = nlohmann::json;

// Kineto's traces count microseconds from a time that they name.
constexpr char kBase[] = "baseTimeNanoseconds";
constexpr double kNsPerUs = 1000.0;

bool is_metadata(const Json& event) { return event.value("ph", "") == "M"; }

Json read_trace(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw Failure(file + ": " + std::strerror(errno));
  }
  Json trace = Json::parse(stream, nullptr, false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace.at("traceEvents").is_array()) {
    throw Failure(file + ": is not a whole trace: is the disk full?");
  }
  return trace;
}

// One number for each process of each rank; a GPU counts as a process.
class Processes {
 public:
  int64_t number(int64_t rank, const Json& pid) {
    const auto key = std::make_pair(rank, pid.dump());
    return numbers_.emplace(key, static_cast<int64_t>(numbers_.size())).first->second;
  }
  bool knows(int64_t rank, const Json& pid) const { return numbers_.count({rank, pid.dump()}) > 0; }

 private:
  std::map<std::pair<int64_t, std::string>, int64_t> numbers_;
};

// A symbolic link stands for what it points to.
std::string followed_link(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) {
    return path;
  }
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) {
    throw Failure(path + ": cannot find what this symbolic link points to: " + error.message());
  }
  return target.string();
}

class Merger {
 public:
  explicit Merger(const std::string& path)
      : path_(followed_link(path)),
        unfinished_(path_ + ".tmp"),
        out_(unfinished_, std::ios::binary) {
    if (!out_) {
      throw Failure(path_ + ": " + std::strerror(errno));
    }
    out_ << "{\"traceEvents\": [";
  }
  ~Merger() { std::remove(unfinished_.c_str()); }
  Merger(const Merger&) = delete;
  Merger& operator=(const Merger&) = delete;

  void add(const RankTrace& trace) {
    Json whole = read_trace(trace.file);
    const int64_t base = whole.value(kBase, int64_t{0});
    if (n_events_ == 0) {
      base_ = base;
    }
    const double shift = static_cast<double>(base - base_) / kNsPerUs;
    for (const Json& event : whole.at("traceEvents")) {
      if (event.contains("pid") && !is_metadata(event)) {
        processes_.number(trace.rank, event.at("pid"));
      }
    }
    for (Json& event : whole.at("traceEvents")) {
      if (event.contains("pid") && processes_.knows(trace.rank, event.at("pid"))) {
        move(&event, trace.rank, shift);
        write(event);
      }
    }
  }

  void finish() {
    out_ << "\n], \"displayTimeUnit\": \"ms\", \"" << kBase << "\": " << base_ << "}\n";
    out_.close();
    if (!out_) {
      throw Failure(path_ + ": cannot be written: is the disk full?");
    }
    if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
      throw Failure(path_ + ": " + std::strerror(errno));
    }
  }

 private:
  void move(Json* event, int64_t rank, double shift) {
    Json& fields = *event;
    fields["pid"] = processes_.number(rank, fields.at("pid"));
    if (!is_metadata(fields)) {
      if (shift != 0 && fields.contains("ts")) {
        fields["ts"] = fields.at("ts").get<double>() + shift;
      }
      return;
    }
    const std::string name = fields.value("name", "");
    if (name == "process_name") {
      fields["args"] = {{"name", "rank " + std::to_string(rank)}};
    } else if (name == "process_sort_index") {
      fields["args"] = {{"sort_index", rank}};
    }
  }

  void write(const Json& event) {
    out_ << (n_events_ == 0 ? "\n" : ",\n")
         << event.dump(-1, ' ', false, Json::error_handler_t::replace);
    ++n_events_;
  }

  std::string path_;
  std::string unfinished_;  // what it is until it is whole
  std::ofstream out_;
  Processes processes_;
  int64_t base_ = 0;  // of the first trace, which the others are moved to
  int64_t n_events_ = 0;
};

}  // namespace

void merge_traces(const std::vector<RankTrace>& traces, const std::string& path) {
  Merger merger(path);
  for (const RankTrace& trace : traces) {
    merger.add(trace);
  }
  merger.finish();
}

}  // namespace fsdp2::cli
