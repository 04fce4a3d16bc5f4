#include "core/comm/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/text_hash.h"
#include "core/comm/all_gather_numbers.h"

namespace fsdp2 {

namespace {

struct Record {
  int64_t hash;
  int64_t threw;
};

std::vector<Record> exchange(Team& team, const Record& mine) {
  const std::vector<int64_t> numbers = all_gather_numbers(team.control(), {mine.hash, mine.threw});
  std::vector<Record> records;
  for (size_t i = 0; i < numbers.size(); i += 2) {
    records.push_back({numbers[i], numbers[i + 1]});
  }
  return records;
}

// The texts of some ranks, by way of the store: all ranks call it, alike, in the same order.
std::vector<std::string> texts_of(Team& team, const std::vector<int>& ranks,
                                  const std::string& mine) {
  // Every rank counts for itself, and so comes to the same number as all others.
  const int64_t number = team.store().add(fmt::format("agreement/of/{}", team.rank()), 1);
  const auto key = [&](int rank) { return fmt::format("agreement/{}/{}", number, rank); };
  if (std::find(ranks.begin(), ranks.end(), team.rank()) != ranks.end()) {
    team.store().set(key(team.rank()), mine);
  }
  std::vector<std::string> texts;
  for (const int rank : ranks) {
    texts.push_back(team.store().get_to_str(key(rank)));
  }
  // The process that serves the store may end on what it is told here: not before all have read.
  team.control().barrier();
  return texts;
}

// Enough to see that it is not one rank alone.
constexpr size_t kFailuresTold = 8;

// "rank 1 failed: ...; rank 2 failed: ...; and 3 more ranks", of the ranks that threw. Collective.
std::string describe_failures(Team& team, std::vector<int> ranks, const std::string& mine) {
  const size_t count = ranks.size();
  ranks.resize(std::min(count, kFailuresTold));
  const std::vector<std::string> texts = texts_of(team, ranks, mine);
  std::vector<std::string> failures;
  for (size_t i = 0; i < ranks.size(); ++i) {
    failures.push_back(fmt::format("rank {} failed: {}", team.rank_in_job(ranks[i]), texts[i]));
  }
  if (count > ranks.size()) {
    failures.push_back(fmt::format("and {} more ranks", count - ranks.size()));
  }
  return fmt::format("{}", fmt::join(failures, "; "));
}

struct Line {
  std::string key;
  std::string value;
  std::string note;
};

Line read_line(const std::string& text) {
  const size_t mark = std::min(text.find(kNoteMark), text.size());
  const std::string compared = text.substr(0, mark);
  const std::string note = mark < text.size() ? text.substr(mark + 1) : "";
  const size_t equals = compared.find('=');
  return equals == std::string::npos
             ? Line{compared, "it", note}
             : Line{compared.substr(0, equals), compared.substr(equals + 1), note};
}

// The lines of a text, which may be many: a program has one for each of its operators.
struct Lines {
  std::vector<Line> in_order;
  std::unordered_map<std::string, size_t> by_key;

  Line find(const std::string& key) const {
    const auto found = by_key.find(key);
    return found == by_key.end() ? Line{key, "nothing", ""} : in_order[found->second];
  }
};

Lines lines_of(const std::string& text) {
  Lines lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.in_order.push_back(read_line(text.substr(start, end - start)));
    lines.by_key.emplace(lines.in_order.back().key, lines.in_order.size() - 1);
    start = end + 1;
  }
  return lines;
}

std::string without_notes(const std::string& text) {
  std::string rest;
  bool in_note = false;
  for (const char letter : text) {
    in_note = letter != '\n' && (in_note || letter == kNoteMark);
    if (!in_note) {
      rest += letter;
    }
  }
  return rest;
}

// "seq_len: rank 0 has 32, rank 1 has 64", of the first line that differs.
std::string first_difference(int rank0, const std::string& text0, int rank1,
                             const std::string& text1) {
  const Lines lines0 = lines_of(text0);
  const Lines lines1 = lines_of(text1);
  const auto told = [](const Line& line) {
    return line.value + (line.note.empty() ? "" : " (" + line.note + ")");
  };
  const auto describe = [&](const std::string& key) {
    return fmt::format("{}: rank {} has {}, rank {} has {}", key, rank0, told(lines0.find(key)),
                       rank1, told(lines1.find(key)));
  };
  for (const Line& line : lines0.in_order) {
    if (lines1.find(line.key).value != line.value) {
      return describe(line.key);
    }
  }
  for (const Line& line : lines1.in_order) {
    if (lines0.find(line.key).value == "nothing") {
      return describe(line.key);
    }
  }
  return fmt::format("rank {} and rank {} have the same lines in another order or number", rank0,
                     rank1);
}

}  // namespace

void agree(Team& team, const std::string& what, const std::function<std::string()>& local) {
  std::string text;
  std::exception_ptr error;
  try {
    text = "the step=" + what + "\n" + local();
  } catch (...) {
    error = std::current_exception();
    text = current_exception_text();
  }
  if (team.size() > 1 && !team.is_fake()) {
    const auto records =
        exchange(team, {static_cast<int64_t>(hash_of_text(without_notes(text))), error != nullptr});
    std::vector<int> threw;
    for (int rank = 0; rank < team.size(); ++rank) {
      if (records[rank].threw != 0) {
        threw.push_back(rank);
      }
    }
    if (!threw.empty()) {
      const std::string failures = describe_failures(team, threw, text);
      FSDP2_CHECK(error != nullptr, Code::kPeerFailed, "{}: {}", what, failures);
    }
    const auto other = std::find_if(records.begin(), records.end(), [&](const Record& record) {
      return record.hash != records[0].hash;
    });
    if (error == nullptr && other != records.end()) {
      const int rank = static_cast<int>(other - records.begin());
      const auto texts = texts_of(team, {0, rank}, text);
      fail(Code::kInvalidArgument, "{}: the ranks differ in {}", what,
           first_difference(team.rank_in_job(0), texts[0], team.rank_in_job(rank), texts[1]));
    }
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

}  // namespace fsdp2
