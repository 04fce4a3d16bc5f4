// Spans of time as a table of names: how often each ran, for how long, and for how long by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::profile {

// On one track (a thread, or a stream of a device) spans lie inside each other or apart.
struct Span {
  std::string name;
  bool on_host = true;
  uint64_t track = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct Row {
  std::string name;
  bool on_host = true;
  int64_t calls = 0;
  int64_t self_ns = 0;   // without the spans inside
  int64_t total_ns = 0;  // with them; a span inside another of its own name counts with that one
};

// The host's first, and by self time from the longest down. A span that juts out of the one that it
// began in counts up to the end of that.
std::vector<Row> operator_rows(std::vector<Span> spans);

// As text: names, calls, self time with its part of the whole, total time, time of a call.
std::string operator_table(const std::vector<Row>& rows);

}  // namespace fsdp2::profile
