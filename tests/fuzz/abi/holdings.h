// What the fuzzer has been given and not destroyed yet, and what it has lent: the library's count
// of live handles has to agree, and what was lent has to come back exactly once. Any thread may use
// it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/functions.h"
#include "tests/fuzz/abi/random.h"

namespace fsdp2::fuzz {

// What is lent to the library, by any thread: user_data with a release function, memory with a
// deleter.
void lend(void* pointer);
bool came_back(void* pointer);  // false if it was not lent
size_t count_lent();

class Holdings {
 public:
  // ---- handles, by the type that they have in the headers: "fsdp2_mesh"

  void take(const std::string& type, uint64_t id);
  void let_go(const std::string& type, uint64_t id);
  std::vector<std::pair<std::string, uint64_t>> all() const;
  size_t count() const;
  size_t count(const std::string& type) const;
  uint64_t oldest(const std::string& type) const;  // 0: none
  // 0 if there is none. A newer one is likelier than an older one.
  uint64_t one_of(const std::string& type, Random& random) const;
  uint64_t one_of_any(Random& random) const;
  uint64_t destroyed(Random& random) const;

  // The newest handle that is good for a purpose, such as the loss for a backward; 0 if it is gone.
  void remember(const std::string& purpose, uint64_t id);
  uint64_t remembered(const std::string& purpose) const;

  // ---- tensors that the library has lent by DLPack

  void keep_loan(void* managed);
  void* take_loan(Random& random);  // null if there is none

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<uint64_t>> handles_;
  std::vector<uint64_t> destroyed_;
  std::map<std::string, uint64_t> remembered_;
  std::vector<void*> loans_;
};

}  // namespace fsdp2::fuzz
