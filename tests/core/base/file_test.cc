#include "core/base/file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>

#include "tests/core/base/file_fixture.h"

namespace fsdp2 {
namespace {

using MappedFileTest = FileTest;
using TextFile = FileTest;
using AtomicFileTest = FileTest;

// While it lives, no file of this process can grow beyond `bytes`: a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit limit_{};
};

TEST_F(MappedFileTest, HasTheBytesOfTheFile) {
  const MappedFile file(write("a", "hello"));
  EXPECT_EQ(file.size(), 5);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "hello");
  EXPECT_EQ(file.path(), path("a"));
}

TEST_F(MappedFileTest, ReadsARange) {
  const MappedFile file(write("a", "0123456789"));
  std::string out(3, ' ');
  file.read(7, 3, out.data());
  EXPECT_EQ(out, "789");
}

TEST_F(MappedFileTest, MayBeEmpty) {
  const MappedFile file(write("a", ""));
  EXPECT_EQ(file.size(), 0);
  EXPECT_TRUE(file.bytes().empty());
}

TEST_F(MappedFileTest, MovesWithItsBytes) {
  MappedFile first(write("a", "hello"));
  const uint8_t* bytes = first.bytes().data();
  const MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().data(), bytes);
  EXPECT_EQ(second.size(), 5);
  second.check_size();
}

TEST_F(MappedFileTest, MissingFileIsNotFound) {
  EXPECT_ERROR(MappedFile(path("none")), Code::kNotFound,
               path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { MappedFile file(path("none")); }).native_code(), ENOENT);
}

TEST_F(MappedFileTest, FileInTheWayOfADirectoryIsNotFound) {
  write("a", "");
  EXPECT_ERROR(MappedFile(path("a/b")), Code::kNotFound, "Not a directory");
}

TEST_F(MappedFileTest, DirectoryIsRefused) {
  EXPECT_ERROR(MappedFile(path("")), Code::kIo, "expected a regular file, found a directory");
}

TEST_F(MappedFileTest, PipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(MappedFile(path("pipe")), Code::kIo, "expected a regular file");
}

TEST_F(MappedFileTest, CutFileIsNoticed) {
  const MappedFile file(write("a", std::string(10000, 'x')));
  file.check_size();
  ASSERT_EQ(::truncate(path("a").c_str(), 100), 0);
  EXPECT_ERROR(file.check_size(), Code::kIo,
               path("a") + ": had 10000 bytes when it was opened and now has 100");
}

TEST_F(MappedFileTest, ReadingACutFileIsAnError) {
  const MappedFile file(write("a", std::string(10000, 'x')));
  ASSERT_EQ(::truncate(path("a").c_str(), 100), 0);
  std::string out(200, ' ');
  EXPECT_ERROR(file.read(0, 200, out.data()), Code::kIo, "ends at byte 100");
}

TEST_F(MappedFileTest, RangeOutsideTheFileIsRefused) {
  const MappedFile file(write("a", "hello"));
  std::string out(10, ' ');
  EXPECT_ERROR(file.read(3, 3, out.data()), Code::kInternal, "read of 3 bytes at 3");
  EXPECT_ERROR(file.read(6, 0, out.data()), Code::kInternal, "at 6");
  EXPECT_ERROR(file.read(1, INT64_MAX, out.data()), Code::kInternal, "at 1");
  EXPECT_ERROR(file.read(-1, 1, out.data()), Code::kInternal, "at -1");
}

TEST_F(TextFile, IsReadWhole) {
  EXPECT_EQ(read_text_file(write("a", "one\ntwo\0three"), 100), "one\ntwo\0three");
}

TEST_F(TextFile, OfExactlyTheLimitIsRead) {
  EXPECT_EQ(read_text_file(write("a", "12345"), 5), "12345");
}

TEST_F(TextFile, AboveTheLimitIsRefused) {
  EXPECT_ERROR(read_text_file(write("a", "12345"), 4), Code::kIo,
               "a: has 5 bytes, at most 4 are accepted");
}

TEST_F(TextFile, MissingFileIsNotFound) {
  EXPECT_ERROR(read_text_file(path("none"), 4), Code::kNotFound, "none: cannot open");
}

TEST_F(AtomicFileTest, AppearsAtCommitAndLeavesNothingElse) {
  AtomicFile file(path("a"));
  file.write("hello ", 6);
  file.write("world", 5);
  EXPECT_EQ(file.bytes_written(), 11);
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  file.commit();
  EXPECT_EQ(contents(path("a")), "hello world");
  EXPECT_EQ(files(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, IsWrittenBesideItsFinalPlace) {
  const AtomicFile file(path("a"));
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(files()[0].rfind("a.tmp-", 0), 0U) << files()[0];
}

TEST_F(AtomicFileTest, ReplacesTheOldFile) {
  write("a", "old");
  AtomicFile file(path("a"));
  file.write("new", 3);
  EXPECT_EQ(contents(path("a")), "old");
  file.commit();
  EXPECT_EQ(contents(path("a")), "new");
}

TEST_F(AtomicFileTest, ReplacesWhatASymbolicLinkPointsTo) {
  write("disk/a", "old");
  std::filesystem::create_symlink(path("disk/a"), path("link"));
  AtomicFile file(path("link"));
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(contents(path("disk/a")), "new");
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  EXPECT_ERROR(AtomicFile(path("dangling")), Code::kIo, "symbolic link");
}

TEST_F(AtomicFileTest, ReplacesNothingButFiles) {
  std::filesystem::create_directory(path("directory"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(AtomicFile(path("directory")), Code::kIo, "is a directory, expected a file");
  EXPECT_ERROR(AtomicFile(path("pipe")), Code::kIo, "expected a file or nothing");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(AtomicFileTest, WithoutCommitLeavesTheOldFileAlone) {
  write("a", "old");
  std::optional<AtomicFile> file(std::in_place, path("a"));
  file->write("new", 3);
  file.reset();
  EXPECT_EQ(contents(path("a")), "old");
  EXPECT_EQ(files(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, FullDiskIsAnErrorAndLeavesTheOldFileAlone) {
  write("a", "old");
  AtomicFile file(path("a"));
  const std::string data(100000, 'x');
  {
    const FullDisk full(4096);
    EXPECT_ERROR(file.write(data.data(), data.size()), Code::kIo,
                 path("a") + ": cannot write 95904 bytes at 4096: File too large");
  }
  EXPECT_EQ(contents(path("a")), "old");
  EXPECT_EQ(files(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, AfterAnErrorNothingCanBeCommitted) {
  AtomicFile file(path("a"));
  const std::string data(10000, 'x');
  {
    const FullDisk full(4096);
    EXPECT_ERROR(file.write(data.data(), data.size()), Code::kIo, "cannot write");
  }
  EXPECT_ERROR(file.write("x", 1), Code::kWrongState, "after it was committed or had an error");
  EXPECT_ERROR(file.commit(), Code::kWrongState, "after it was committed or had an error");
  EXPECT_TRUE(files().empty());
}

TEST_F(AtomicFileTest, CannotBeCommittedTwice) {
  AtomicFile file(path("a"));
  file.commit();
  EXPECT_ERROR(file.commit(), Code::kWrongState, "after it was committed");
}

TEST_F(AtomicFileTest, FailedRenameLeavesNoTemporary) {
  AtomicFile file(path("a"));
  std::filesystem::create_directories(path("a/b"));
  EXPECT_ERROR(file.commit(), Code::kIo, path("a") + ": cannot rename");
  EXPECT_EQ(files(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, MissingDirectoryIsNotFound) {
  EXPECT_ERROR(AtomicFile(path("none/a")), Code::kNotFound,
               path("none/a") + ": cannot create: No such file or directory");
}

TEST_F(AtomicFileTest, TwoWritersOfOneFileDoNotMix) {
  AtomicFile first(path("a"));
  AtomicFile second(path("a"));
  first.write("first", 5);
  second.write("second", 6);
  second.commit();
  first.commit();
  EXPECT_EQ(contents(path("a")), "first");
}

TEST_F(AtomicFileTest, HasThePermissionsOfAnOrdinaryFile) {
  AtomicFile(path("a")).commit();
  struct stat atomic, ordinary;
  ASSERT_EQ(::stat(path("a").c_str(), &atomic), 0);
  ASSERT_EQ(::stat(write("b", "").c_str(), &ordinary), 0);
  EXPECT_EQ(atomic.st_mode, ordinary.st_mode);
}

}  // namespace
}  // namespace fsdp2
