// Meeting by file://, where other jobs may have left their own.
#include "core/comm/meet/meeting_file.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/meet/tcp_store.h"
#include "core/comm/world.h"

namespace fsdp2 {
namespace {

using std::chrono::milliseconds;

class MeetByFile : public testing::Test {
 protected:
  MeetByFile() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~MeetByFile() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/meeting"; }

  std::shared_ptr<World> join(int rank, int size, milliseconds timeout = milliseconds(60000)) {
    return World::join({BackendKind::kAuto, "file://" + path(), rank, size, rank, timeout});
  }

  Error error_of_join(int rank, int size) {
    try {
      join(rank, size, milliseconds(1000));
    } catch (const Error& error) {
      return error;
    }
    return {Code::kInternal, "no error"};
  }

  // Joins and communicates, rank 0 some time after the others.
  void expect_a_world(int size) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([this, rank, size] {
        std::this_thread::sleep_for(milliseconds(rank == 0 ? 200 : 0));
        const auto world = join(rank, size);
        EXPECT_EQ(world->rank(), rank);
        world->control().barrier();
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }

 private:
  std::string folder_ = testing::TempDir() + "/meetXXXXXX";
};

TEST_F(MeetByFile, OneWorldAfterTheOther) {
  for (int time = 0; time < 3; ++time) {
    expect_a_world(3);
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
}

TEST_F(MeetByFile, AFileOfADeadJobIsPassedOver) {
  const uint16_t free_port = serve_tcp_store("127.0.0.1", 0, milliseconds(1000))->getPort();
  MeetingFile(path()).announce(free_port);
  expect_a_world(2);
}

TEST_F(MeetByFile, AFileOfAJobThatStillRunsIsPassedOver) {
  const TcpStorePtr other = serve_tcp_store("127.0.0.1", 0, milliseconds(1000));
  MeetingFile(path()).announce(other->getPort());
  expect_a_world(2);
}

TEST_F(MeetByFile, MissingRanksAreNamed) {
  const Error without_zero = error_of_join(1, 2);
  EXPECT_EQ(without_zero.code(), Code::kTimeout);
  EXPECT_EQ(without_zero.message(),
            "rank 1 found no rank 0 through " + path() +
                " in time (no such file): it has not started, or the ranks were given different "
                "files");
  const Error without_one = error_of_join(0, 2);
  EXPECT_EQ(without_one.code(), Code::kTimeout);
  EXPECT_EQ(without_one.message(), "1 of 2 ranks came within 1.0 s, missing: 1");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(MeetByFile, AnotherKindOfFileIsRefused) {
  for (const char* text : {"", "my notes\n", "libfsdp2 meeting 1\n1\n2\n99999\nhost\n"}) {
    std::ofstream(path()) << text;
    const Error error = error_of_join(1, 2);
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_EQ(error.message(),
              path() + ": is not a file that ranks meet at; name one of its own to file://");
  }
}

TEST_F(MeetByFile, AnotherKindOfFileStaysAsItIs) {
  std::ofstream(path()) << "my notes\n";
  const Error error = error_of_join(0, 2);
  EXPECT_EQ(error.code(), Code::kIo);
  EXPECT_EQ(error.message(),
            path() + ": is not a file that ranks meet at; name one of its own to file://");
  std::ifstream file(path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "my notes\n");
}

TEST_F(MeetByFile, AnEmptyFileIsTakenByRankZero) {
  std::ofstream(path()) << "";
  MeetingFile(path()).announce(1234);
  EXPECT_EQ(MeetingFile(path()).find()->port, 1234);
}

TEST_F(MeetByFile, WhatAnotherJobHasAnnouncedSinceIsNotRemoved) {
  const MeetingFile file(path());
  const std::string first = file.announce(1234);
  const std::string second = file.announce(1235);
  file.remove(first);
  EXPECT_TRUE(std::filesystem::exists(path()));
  file.remove(second);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(MeetByFile, ADirectoryThatIsNotThereIsNamed) {
  std::filesystem::remove_all(std::filesystem::path(path()).parent_path());
  const Error error = error_of_join(0, 2);
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_NE(error.message().find(path()), std::string::npos) << error.message();
}

TEST_F(MeetByFile, TheFileLeadsToThisMachineFirst) {
  MeetingFile(path()).announce(1234);
  const auto found = MeetingFile(path()).find();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->port, 1234);
  EXPECT_EQ(found->hosts.front(), "127.0.0.1");
  EXPECT_GE(found->hosts.size(), 2);
  MeetingFile(path()).announce(1234);
  EXPECT_NE(MeetingFile(path()).find()->text, found->text);
}

}  // namespace
}  // namespace fsdp2
