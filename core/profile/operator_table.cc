#include "core/profile/operator_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace fsdp2::profile {

namespace {

using Key = std::pair<bool, std::string>;  // whether it ran on a device, and its name
using Rows = std::map<Key, Row>;

struct Open {
  Row* row;
  int64_t end_ns;
};

Row& row_of(Rows* rows, const Span& span) {
  Row& row = (*rows)[{!span.on_host, span.name}];
  row.name = span.name;
  row.on_host = span.on_host;
  return row;
}

// The spans around the next one on its track, the outermost first.
class Around {
 public:
  void enter(const Span& span, Row* row) {
    while (!open_.empty() && open_.back().end_ns <= span.start_ns) {
      open_.pop_back();
    }
    const int64_t end = open_.empty() ? span.end_ns : std::min(span.end_ns, open_.back().end_ns);
    const int64_t ns = std::max<int64_t>(0, end - span.start_ns);
    if (!open_.empty()) {
      open_.back().row->self_ns -= ns;
    }
    const bool is_inside_itself =
        std::any_of(open_.begin(), open_.end(), [&](const Open& open) { return open.row == row; });
    ++row->calls;
    row->self_ns += ns;
    row->total_ns += is_inside_itself ? 0 : ns;
    open_.push_back({row, end});
  }

 private:
  std::vector<Open> open_;
};

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// Names may be signatures of kernels, of any length.
std::string cut(const std::string& name, size_t width) {
  return name.size() <= width ? name : name.substr(0, width - 3) + "...";
}

}  // namespace

std::vector<Row> operator_rows(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::make_tuple(!a.on_host, a.track, a.start_ns, -a.end_ns) <
           std::make_tuple(!b.on_host, b.track, b.start_ns, -b.end_ns);
  });
  Rows rows;
  std::map<std::pair<bool, uint64_t>, Around> tracks;
  for (const Span& span : spans) {
    tracks[{span.on_host, span.track}].enter(span, &row_of(&rows, span));
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) {
    sorted.push_back(std::move(row));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) {
    return std::make_tuple(!a.on_host, -a.self_ns) < std::make_tuple(!b.on_host, -b.self_ns);
  });
  return sorted;
}

std::string operator_table(const std::vector<Row>& rows) {
  constexpr size_t kWidest = 60;
  size_t width = 4;
  int64_t host_ns = 0, device_ns = 0;
  for (const Row& row : rows) {
    width = std::max(width, std::min(row.name.size(), kWidest));
    (row.on_host ? host_ns : device_ns) += row.self_ns;
  }
  std::string text = fmt::format("{:<{}}  {:>8}  {:>12}  {:>6}  {:>12}  {:>12}\n", "name", width,
                                 "calls", "self ms", "self %", "total ms", "ms a call");
  bool is_on_host = true;
  for (const Row& row : rows) {
    if (is_on_host && !row.on_host) {
      text += "on the device\n";
    }
    is_on_host = row.on_host;
    const int64_t whole = row.on_host ? host_ns : device_ns;
    const double part =
        whole > 0 ? 100.0 * static_cast<double>(row.self_ns) / static_cast<double>(whole) : 0.0;
    text += fmt::format("{:<{}}  {:>8}  {:>12.3f}  {:>6.1f}  {:>12.3f}  {:>12.4f}\n",
                        cut(row.name, kWidest), width, row.calls, milliseconds(row.self_ns), part,
                        milliseconds(row.total_ns),
                        milliseconds(row.total_ns) / static_cast<double>(row.calls));
  }
  return text;
}

}  // namespace fsdp2::profile
