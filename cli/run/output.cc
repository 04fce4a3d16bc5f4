#include "cli/run/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

constexpr size_t kLongestLine = 1 << 16;  // a longer one is written in parts

// Returns 0 or errno: an output that cannot be written must not keep the launcher from looking
// after the ranks.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

Screen::Screen()
    : stdout_is_terminal_(cli::is_terminal(STDOUT_FILENO)),
      stderr_is_terminal_(cli::is_terminal(STDERR_FILENO)),
      shows_status_(terminal_columns(STDERR_FILENO) > 0) {}

bool Screen::is_terminal(int fd) const {
  return fd == STDOUT_FILENO ? stdout_is_terminal_ : stderr_is_terminal_;
}

int Screen::columns() const { return terminal_columns(STDERR_FILENO); }

void Screen::write(int fd, std::string_view text) {
  if (text.empty()) {
    return;
  }
  if (!status_.empty()) {
    write_all(STDERR_FILENO, std::string("\r") + kClearToEnd);
  }
  const int error = write_all(fd, text);
  if (error == EPIPE) {
    (fd == STDOUT_FILENO ? stdout_is_read_ : stderr_is_read_) = false;
  } else if (error != 0 && fd == STDOUT_FILENO && lost_output_ == 0) {
    lost_output_ = error;
  }
  draw_status();
}

void Screen::set_status(std::string text) {
  if (!shows_status_) {
    return;
  }
  if (text.empty() && !status_.empty()) {
    write_all(STDERR_FILENO, std::string("\r") + kClearToEnd);
  }
  status_ = std::move(text);
  draw_status();
}

void Screen::draw_status() {
  if (!status_.empty()) {
    const size_t room = static_cast<size_t>(columns()) - 1;
    write_all(STDERR_FILENO, "\r" + status_.substr(0, room) + kClearToEnd);
  }
}

RankStream::RankStream(Screen* screen, int source, int target, std::string prefix,
                       bool may_set_status)
    : screen_(screen),
      source_(source),
      target_(target),
      prefix_(std::move(prefix)),
      cuts_status_(screen->is_terminal(target)),
      may_set_status_(may_set_status) {}

RankStream::~RankStream() { close_source(); }

RankStream::RankStream(RankStream&& other) noexcept
    : screen_(other.screen_),
      source_(std::exchange(other.source_, -1)),
      target_(other.target_),
      prefix_(std::move(other.prefix_)),
      cuts_status_(other.cuts_status_),
      may_set_status_(other.may_set_status_),
      line_(std::move(other.line_)),
      was_status_(other.was_status_) {}

void RankStream::pump() {
  std::array<char, 1 << 16> buffer;
  const ssize_t n = read(source_, buffer.data(), buffer.size());
  if (n > 0) {
    std::string lines;
    take({buffer.data(), static_cast<size_t>(n)}, &lines);
    write(lines);
  } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
    finish();
  }
}

void RankStream::drain() {
  constexpr int kReads = 64;  // more than a pipe holds
  for (int i = 0; i < kReads && source_ >= 0; ++i) {
    pump();
  }
  if (source_ >= 0) {
    finish();
  }
}

void RankStream::finish() {
  std::string lines;
  if (!line_.empty() && !was_status_) {
    if (!prefix_.empty()) {
      line_ += '\n';  // what comes next is from another rank
    }
    end_line(&lines);
  }
  write(lines);
  close_source();
}

void RankStream::write(const std::string& lines) {
  screen_->write(target_, lines);
  if (!screen_->is_read(target_)) {
    close_source();
  }
}

void RankStream::close_source() {
  if (source_ >= 0) {
    close(source_);
    source_ = -1;
  }
}

void RankStream::take(std::string_view bytes, std::string* lines) {
  const std::string_view ends = cuts_status_ ? "\n\r" : "\n";
  while (!bytes.empty()) {
    if (std::exchange(was_status_, false)) {
      if (bytes.front() != '\n') {
        line_.clear();
      } else if (may_set_status_) {  // an ordinary line that ends in \r\n
        screen_->set_status("");
      }
    }
    const size_t end = bytes.find_first_of(ends);
    const std::string_view part = bytes.substr(0, end);
    line_ += part;
    bytes.remove_prefix(part.size());
    if (!bytes.empty() && bytes.front() == '\r') {
      was_status_ = true;
      if (may_set_status_) {
        screen_->set_status(line_.empty() ? "" : prefix_ + line_);
      }
      bytes.remove_prefix(1);
    } else if (!bytes.empty()) {
      line_ += '\n';
      end_line(lines);
      bytes.remove_prefix(1);
    } else if (line_.size() > kLongestLine) {
      line_ += prefix_.empty() ? "" : "\n";
      end_line(lines);
    }
  }
}

void RankStream::end_line(std::string* lines) {
  *lines += prefix_;
  *lines += line_;
  line_.clear();
}

}  // namespace fsdp2::cli
