#include "capi/guard.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "include/fsdp2/error.h"

namespace fsdp2::capi {
namespace {

template <typename Throw>
fsdp2_status status_of(const Throw& what) {
  return guard("fsdp2_some_call", [&](Call&) { what(); });
}

fsdp2_error_info last_error() {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_last(&info);
  return info;
}

TEST(Guard, ErrorsOfTheCoreKeepTheirCodeAndNumber) {
  EXPECT_EQ(status_of([] { throw Error(Code::kIo, "cannot open x: no", 2); }), FSDP2_E_IO);
  const fsdp2_error_info info = last_error();
  EXPECT_EQ(info.status, FSDP2_E_IO);
  EXPECT_EQ(info.native_code, 2);
  EXPECT_EQ(info.rank, -1);
  EXPECT_STREQ(info.message, "cannot open x: no");
  EXPECT_STREQ(info.function, "fsdp2_some_call");
  EXPECT_STREQ(info.detail, "");
}

TEST(Guard, ACallCanGoOnWithWhatWasThrown) {
  EXPECT_EQ(caught_in([] {}), nullptr);
  const std::exception_ptr caught = caught_in([] { fail(Code::kNotFound, "no dim"); });
  EXPECT_EQ(status_of([&] { std::rethrow_exception(caught); }), FSDP2_E_NOT_FOUND);
}

TEST(Guard, EveryKindOfExceptionBecomesAStatus) {
  EXPECT_EQ(status_of([] { throw std::bad_alloc(); }), FSDP2_E_OUT_OF_MEMORY);
  EXPECT_EQ(status_of([] { at::empty({int64_t{1} << 60}, at::kByte); }), FSDP2_E_OUT_OF_MEMORY);
  EXPECT_EQ(status_of([] { throw std::logic_error("odd"); }), FSDP2_E_INTERNAL);
  EXPECT_STREQ(fsdp2_error_message(), "odd");
  EXPECT_EQ(status_of([] { throw 42; }), FSDP2_E_INTERNAL);
  EXPECT_EQ(status_of([] { TORCH_CHECK(false, "sizes differ"); }), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STREQ(fsdp2_error_message(), "sizes differ");
  EXPECT_NE(std::string(last_error().detail), "");
}

TEST(Guard, FurtherLinesOfAMessageAreDetail) {
  status_of([] { throw Error(Code::kIo, "first\nsecond\nthird"); });
  EXPECT_STREQ(last_error().message, "first");
  EXPECT_STREQ(last_error().detail, "second\nthird");
}

TEST(Guard, SuccessLeavesTheRecordAlone) {
  status_of([] { throw Error(Code::kIo, "kept"); });
  EXPECT_EQ(status_of([] {}), FSDP2_OK);
  EXPECT_STREQ(fsdp2_error_message(), "kept");
}

struct FailsAtTheEnd {
  FailsAtTheEnd() = default;
  ~FailsAtTheEnd() {
    status_of([] { throw Error(Code::kIo, std::string(200, 'b')); });
    *message = fsdp2_error_message();
  }
  FailsAtTheEnd(const FailsAtTheEnd&) = delete;
  FailsAtTheEnd& operator=(const FailsAtTheEnd&) = delete;
  std::string* message = nullptr;
};

TEST(Guard, AnObjectOfAThreadMayFailWhenItGoesAfterTheRecord) {
  std::string last;
  std::thread([&] {
    thread_local FailsAtTheEnd made_first;
    made_first.message = &last;
    EXPECT_EQ(status_of([] { throw Error(Code::kIo, std::string(100, 'a')); }), FSDP2_E_IO);
  }).join();
  EXPECT_EQ(last, std::string(200, 'b'));
}

TEST(Guard, EachThreadHasItsOwnRecord) {
  status_of([] { throw Error(Code::kIo, "mine"); });
  std::thread([] {
    EXPECT_EQ(last_error().status, FSDP2_OK);
    EXPECT_STREQ(fsdp2_error_message(), "");
    status_of([] { throw Error(Code::kIo, "theirs"); });
  }).join();
  EXPECT_STREQ(fsdp2_error_message(), "mine");
}

TEST(Guard, TheThreadsModesAreSetAndRestored) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode inference;
  const fsdp2_status status = guard("fsdp2_some_call", [](Call&) {
    EXPECT_TRUE(at::GradMode::is_enabled());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
    EXPECT_FALSE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
  });
  EXPECT_EQ(status, FSDP2_OK);
  EXPECT_FALSE(at::GradMode::is_enabled());
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
}

TEST(Guard, NothingIsCastInsideWhateverTheThreadCasts) {
  const auto casts = [] { return at::autocast::is_autocast_enabled(at::kCPU); };
  const auto status = [&] {
    return guard("fsdp2_some_call", [&](Call&) { EXPECT_FALSE(casts()); });
  };
  EXPECT_EQ(status(), FSDP2_OK);
  EXPECT_FALSE(casts());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_EQ(status(), FSDP2_OK);
  EXPECT_TRUE(casts());
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(Guard, ModesThatACallLeavesBehindEndWithIt) {
  const auto keys = [] { return c10::impl::tls_local_dispatch_key_set(); };
  const c10::impl::LocalDispatchKeySet before = keys();
  const fsdp2_status status = guard("fsdp2_some_call", [&](Call&) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    c10::AutogradState::get_tls_state().set_grad_mode(false);
  });
  EXPECT_EQ(status, FSDP2_OK);
  EXPECT_EQ(keys().excluded_, before.excluded_);
  EXPECT_EQ(keys().included_, before.included_);
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_TRUE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
}

TEST(Guard, ASecondThreadInTheSameObjectIsRefused) {
  const auto busy = std::make_shared<Busy>("model");
  const fsdp2_status outer = guard("fsdp2_outer", [&](Call& call) {
    call.occupy(busy);
    std::thread([&] {
      EXPECT_EQ(guard("fsdp2_inner", [&](Call& inner) { inner.occupy(busy); }), FSDP2_E_BUSY);
      EXPECT_STREQ(fsdp2_error_message(),
                   "the model serves one thread at a time: another is inside fsdp2_outer");
    }).join();
  });
  EXPECT_EQ(outer, FSDP2_OK);
  EXPECT_EQ(guard("fsdp2_after", [&](Call& call) { call.occupy(busy); }), FSDP2_OK);
}

// The status of a call of the same thread that may share an object with one around it.
fsdp2_status nested(const std::shared_ptr<Busy>& busy, Nested kind) {
  return guard("fsdp2_nested", [&](Call& call) {
    kind == Nested::kNothing ? call.occupy(busy) : call.join(busy, kind);
  });
}

TEST(Guard, ACallbacksCallsShareTheObjectAsFarAsItLetsThemIn) {
  const auto busy = std::make_shared<Busy>("model");
  const fsdp2_status outer = guard("fsdp2_outer", [&](Call& call) {
    call.occupy(busy);
    EXPECT_EQ(nested(busy, Nested::kReads), FSDP2_E_BUSY);  // in no callback
    {
      const InCallback inside(Nested::kReads);
      EXPECT_EQ(nested(busy, Nested::kReads), FSDP2_OK);
      EXPECT_EQ(nested(busy, Nested::kForwards), FSDP2_E_BUSY);
      EXPECT_EQ(nested(busy, Nested::kNothing), FSDP2_E_BUSY);
      std::thread([&] { EXPECT_EQ(nested(busy, Nested::kReads), FSDP2_E_BUSY); }).join();
    }
    EXPECT_EQ(nested(busy, Nested::kReads), FSDP2_E_BUSY);
  });
  EXPECT_EQ(outer, FSDP2_OK);
  EXPECT_EQ(nested(busy, Nested::kNothing), FSDP2_OK);  // nobody is inside any more
}

TEST(Guard, ACallbackInsideACallbacksCallSharesNoMoreThanBothLetIn) {
  const auto busy = std::make_shared<Busy>("model");
  guard("fsdp2_outer", [&](Call& call) {
    call.occupy(busy);
    const InCallback forward(Nested::kForwards);
    EXPECT_EQ(nested(busy, Nested::kForwards), FSDP2_OK);
    guard("fsdp2_child", [&](Call& child) {
      child.join(busy, Nested::kForwards);
      const InCallback hook(Nested::kReads);
      EXPECT_EQ(nested(busy, Nested::kReads), FSDP2_OK);
      EXPECT_EQ(nested(busy, Nested::kForwards), FSDP2_E_BUSY);
    });
    EXPECT_EQ(nested(busy, Nested::kForwards), FSDP2_OK);
  });
}

TEST(Guard, ACallThatSharesRecordsGradientsOnlyWhereTheOneAroundItDoes) {
  const auto busy = std::make_shared<Busy>("model");
  const auto elsewhere = std::make_shared<Busy>("model");
  const auto records = [](const std::shared_ptr<Busy>& object) {
    bool answer = false;
    guard("fsdp2_child", [&](Call& child) {
      child.join(object, Nested::kForwards);
      answer = child.may_record_gradients();
    });
    return answer;
  };
  guard("fsdp2_outer", [&](Call& call) {
    call.occupy(busy);
    {
      const InCallback inside(Nested::kForwards);
      EXPECT_TRUE(records(busy));
    }
    const at::NoGradGuard no_grad;
    const InCallback inside(Nested::kForwards);
    EXPECT_FALSE(records(busy));
    EXPECT_TRUE(records(elsewhere));  // a model of its own
  });
}

TEST(Guard, AFailingCallLeavesItsObjectsFree) {
  const auto busy = std::make_shared<Busy>("model");
  const auto fail_inside = [&](Call& call) {
    call.occupy(busy);
    throw Error(Code::kIo, "no");
  };
  EXPECT_EQ(guard("fsdp2_first", fail_inside), FSDP2_E_IO);
  EXPECT_EQ(guard("fsdp2_second", fail_inside), FSDP2_E_IO);
}

// In the call the thread waits as in a collective: at cancellation points, below a catch (...).
TEST(Guard, AThreadThatIsCancelledEndsAfterItsCall) {
  struct Progress {
    std::atomic<bool> is_inside{false};
    std::atomic<bool> is_cancelled{false};
    std::atomic<bool> has_returned{false};
  };
  Progress progress;
  const auto body = [](void* argument) -> void* {
    auto& mine = *static_cast<Progress*>(argument);
    guard("fsdp2_waits", [&](Call&) {
      try {
        mine.is_inside = true;
        while (!mine.is_cancelled) {
          usleep(1000);
        }
        usleep(1000);
      } catch (...) {
        fail(Code::kInternal, "cut off");
      }
    });
    mine.has_returned = true;
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, body, &progress), 0);
  while (!progress.is_inside) {
    usleep(1000);
  }
  ASSERT_EQ(pthread_cancel(thread), 0);
  progress.is_cancelled = true;
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_TRUE(progress.has_returned);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

TEST(StatusName, UnknownNumbersHaveTheirClass) {
  EXPECT_STREQ(fsdp2_status_name(FSDP2_OK), "FSDP2_OK");
  EXPECT_STREQ(fsdp2_status_name(FSDP2_E_TIMEOUT), "FSDP2_E_TIMEOUT");
  EXPECT_STREQ(fsdp2_status_name(499), "FSDP2_E_4XX");
  EXPECT_STREQ(fsdp2_status_name(700), "FSDP2_E_7XX");
  for (const fsdp2_status none : {-1, 1, 99, 1000, INT32_MAX, INT32_MIN}) {
    EXPECT_STREQ(fsdp2_status_name(none), "FSDP2_E_UNKNOWN");
  }
}

}  // namespace
}  // namespace fsdp2::capi
