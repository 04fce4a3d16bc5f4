// Expects an Error of a code whose message has all of some words.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::checklist {

template <class Call>
void expect_error(Code code, const std::vector<std::string>& words, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    for (const std::string& word : words) {
      EXPECT_NE(error.message().find(word), std::string::npos)
          << "no '" << word << "' in: " << error.message();
    }
  }
}

}  // namespace fsdp2::checklist
