#include "core/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fsdp2 {

namespace {

// The number of letters to insert, delete, replace or swap with a neighbour to turn `a` into `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last;
  std::vector<size_t> last(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::exchange(last, std::move(row));
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // what is longer was meant to be something else
  std::string best;
  if (word.size() > kLongest) {
    return best;
  }
  size_t best_distance = 1 + std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    // A part of a flag is near as well: --batch for --global-batch.
    const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    const bool part = bare.size() >= 4 && candidate.find(bare) != std::string::npos;
    const size_t distance = part ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace fsdp2
