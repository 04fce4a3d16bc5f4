// Random numbers of recorded work, by themselves: on the host, which records nothing.
#include "core/nn/random/recorded_draws.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/nn/random/generator_state.h"
#include "core/nn/random/row_keys.h"

namespace fsdp2::nn {
namespace {

const at::Device kDevice(at::kCPU);

// Cannot be put back.
struct Stubborn final : at::CPUGeneratorImpl {
  void set_state(const c10::TensorImpl& /*state*/) override {
    throw std::runtime_error("there is no way back");
  }
};

TEST(RecordedDraws, LeaveTheGeneratorAsItWasWhateverEndsThem) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  const at::Tensor before = state_of(generator);
  RecordedDraws draws(generator, kDevice);
  {
    RecordedDraws::Scope scope(draws);
    EXPECT_TRUE(is_recording(kDevice));
    draws.next();
    scope.end();
    EXPECT_FALSE(is_recording(kDevice));
    EXPECT_TRUE(state_of(generator).equal(before));
  }
  try {
    const RecordedDraws::Scope scope(draws);
    draws.next();
    throw std::runtime_error("the recording fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(is_recording(kDevice));
  EXPECT_TRUE(state_of(generator).equal(before));
}

TEST(RecordedDraws, AGeneratorThatCannotBePutBackIsAnErrorAtTheEndAndLoggedAfterAnother) {
  at::Generator generator = at::make_generator<Stubborn>();
  RecordedDraws draws(generator, kDevice);
  {
    RecordedDraws::Scope scope(draws);
    EXPECT_THROW(scope.end(), std::runtime_error);
  }
  EXPECT_FALSE(is_recording(kDevice));
  std::vector<std::string> told;
  set_log_sink(LogLevel::kError, [&](const LogRecord& record) { told.push_back(record.message); });
  {
    const LogScope log_scope;
    try {
      const RecordedDraws::Scope scope(draws);
      throw std::runtime_error("the recording fails");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the recording fails");
    }
  }
  set_log_sink(LogLevel::kWarning, {});
  EXPECT_EQ(told, std::vector<std::string>{
                      "a recording has failed, and its model's generator could not be put back: "
                      "there is no way back"});
  EXPECT_FALSE(is_recording(kDevice));
}

TEST(RecordedDraws, TwoRecordingsOfADeviceAtATimeAreAnErrorAndTheFirstGoesOn) {
  RecordedDraws first(at::detail::createCPUGenerator(1), kDevice);
  at::Generator other = at::detail::createCPUGenerator(2);
  RecordedDraws second(other, kDevice);
  {
    const RecordedDraws::Scope scope(first);
    EXPECT_ANY_THROW(RecordedDraws::Scope{second});
    EXPECT_EQ(RecordedDraws::of(other), nullptr);
    EXPECT_TRUE(is_recording(kDevice));
  }
  EXPECT_FALSE(is_recording(kDevice));
}

}  // namespace
}  // namespace fsdp2::nn
