#include "core/comm/shared_notes.h"

#include <new>
#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

template <typename Question>
auto SharedNotes::ask(const Question& question) {
  try {
    return question(team_.store());
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {  // this rank's own, not the store's
    throw;
  } catch (...) {
    const std::string text = current_exception_text();
    FSDP2_CHECK(!team_.failure().failed(), Code::kPeerFailed, "a rank failed: {}",
                team_.failure().text());
    fail(Code::kComm, "{}: the job's store, which rank 0 or the launcher keeps, is lost: {}",
         purpose_, text);
  }
}

void SharedNotes::put(const std::string& name, const std::string& text) {
  ask([&](c10d::Store& store) { store.set(name, std::vector<uint8_t>(text.begin(), text.end())); });
}

bool SharedNotes::has(const std::string& name) {
  return ask([&](c10d::Store& store) { return store.check({name}); });
}

std::string SharedNotes::get(const std::string& name) {
  const std::vector<uint8_t> text = ask([&](c10d::Store& store) { return store.get(name); });
  return {text.begin(), text.end()};
}

int64_t SharedNotes::count(const std::string& name, int64_t more) {
  return ask([&](c10d::Store& store) { return store.add(name, more); });
}

void SharedNotes::remove(const std::string& name) {
  ask([&](c10d::Store& store) { return store.deleteKey(name); });
}

}  // namespace fsdp2
