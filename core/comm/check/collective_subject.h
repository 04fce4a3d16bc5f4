// What the collectives that a thread starts are for: messages of the detailed checks
// (collective_check.h) name it. Nothing is written down unless they ask.
//
//   const auto name = [&] { return parameter.name(); };
//   const CollectiveSubject subject(name);
//   comm.all_gather(out, in);
#pragma once

#include <string>

namespace fsdp2 {

class CollectiveSubject {
 public:
  // Until it goes out of scope. `name` outlives it; subjects within subjects hide those around.
  template <typename Name>
  explicit CollectiveSubject(const Name& name)
      : name_(&name),
        call_([](const void* stored) -> std::string {
          return (*static_cast<const Name*>(stored))();
        }),
        outer_(current()) {
    current() = this;
  }
  ~CollectiveSubject() { current() = outer_; }
  CollectiveSubject(const CollectiveSubject&) = delete;
  CollectiveSubject& operator=(const CollectiveSubject&) = delete;

  // That of this thread now; empty if there is none.
  static std::string text() {
    return current() == nullptr ? "" : current()->call_(current()->name_);
  }

 private:
  static const CollectiveSubject*& current() {
    thread_local const CollectiveSubject* subject = nullptr;
    return subject;
  }

  const void* const name_;
  std::string (*const call_)(const void*);
  const CollectiveSubject* const outer_;
};

}  // namespace fsdp2
