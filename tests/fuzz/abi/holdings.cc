#include "tests/fuzz/abi/holdings.h"

#include <algorithm>
#include <set>

namespace fsdp2::fuzz {

namespace {

std::mutex lent_mutex;
std::set<void*> lent;

}  // namespace

void lend(void* pointer) {
  const std::lock_guard lock(lent_mutex);
  lent.insert(pointer);
}

bool came_back(void* pointer) {
  const std::lock_guard lock(lent_mutex);
  return lent.erase(pointer) == 1;
}

size_t count_lent() {
  const std::lock_guard lock(lent_mutex);
  return lent.size();
}

void Holdings::take(const std::string& type, uint64_t id) {
  const std::lock_guard lock(mutex_);
  handles_[type].push_back(id);
}

void Holdings::let_go(const std::string& type, uint64_t id) {
  const std::lock_guard lock(mutex_);
  auto& of_type = handles_[type];
  of_type.erase(std::remove(of_type.begin(), of_type.end(), id), of_type.end());
  for (auto& [purpose, remembered] : remembered_) {
    remembered = remembered == id ? 0 : remembered;
  }
  destroyed_.push_back(id);
  if (destroyed_.size() > 32) {
    destroyed_.erase(destroyed_.begin());
  }
}

std::vector<std::pair<std::string, uint64_t>> Holdings::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> all;
  for (const auto& [type, of_type] : handles_) {
    for (const uint64_t id : of_type) {
      all.emplace_back(type, id);
    }
  }
  return all;
}

size_t Holdings::count() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [type, of_type] : handles_) {
    count += of_type.size();
  }
  return count;
}

size_t Holdings::count(const std::string& type) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(type);
  return found == handles_.end() ? 0 : found->second.size();
}

uint64_t Holdings::oldest(const std::string& type) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(type);
  return found == handles_.end() || found->second.empty() ? 0 : found->second.front();
}

uint64_t Holdings::one_of(const std::string& type, Random& random) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(type);
  if (found == handles_.end() || found->second.empty()) {
    return 0;
  }
  const size_t size = found->second.size();
  return found->second[std::max(random.below(size), random.below(size))];
}

uint64_t Holdings::one_of_any(Random& random) const {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> all;
  for (const auto& [type, of_type] : handles_) {
    all.insert(all.end(), of_type.begin(), of_type.end());
  }
  return all.empty() ? 0 : random.of(all);
}

uint64_t Holdings::destroyed(Random& random) const {
  const std::lock_guard lock(mutex_);
  return destroyed_.empty() ? 0 : random.of(destroyed_);
}

void Holdings::remember(const std::string& purpose, uint64_t id) {
  const std::lock_guard lock(mutex_);
  remembered_[purpose] = id;
}

uint64_t Holdings::remembered(const std::string& purpose) const {
  const std::lock_guard lock(mutex_);
  const auto found = remembered_.find(purpose);
  return found == remembered_.end() ? 0 : found->second;
}

void Holdings::keep_loan(void* managed) {
  const std::lock_guard lock(mutex_);
  loans_.push_back(managed);
}

void* Holdings::take_loan(Random& random) {
  const std::lock_guard lock(mutex_);
  if (loans_.empty()) {
    return nullptr;
  }
  const size_t index = random.below(loans_.size());
  void* loan = loans_[index];
  loans_.erase(loans_.begin() + static_cast<std::ptrdiff_t>(index));
  return loan;
}

}  // namespace fsdp2::fuzz
