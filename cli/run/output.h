// The output of all ranks, put together so that lines never interleave.
//
// A rank's stream is cut into lines; what is read at once is written at once. On a terminal, text
// that ends in a carriage return is a status: the newest one stays below everything else until the
// next one replaces it.
//
// Once a reader of the launcher's output has left (fsdp2 run ... | head), the streams that go there
// are closed: a rank that writes on meets what it would meet if it wrote there itself.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>

namespace fsdp2::cli {

// Standard output and standard error of the launcher, and the status line on its terminal.
class Screen {
 public:
  Screen();

  // Whether this descriptor (1 or 2) is a terminal.
  bool is_terminal(int fd) const;
  int columns() const;  // of the status line; 0: standard error cannot show one

  // Writes whole lines, above the status.
  void write(int fd, std::string_view text);
  // The errno with which a write to standard output failed; 0 if all was written.
  int lost_output() const { return lost_output_; }
  // Whether somebody may still read what is written to this descriptor.
  bool is_read(int fd) const { return fd == STDOUT_FILENO ? stdout_is_read_ : stderr_is_read_; }
  // Shows a status; an empty one removes it.
  void set_status(std::string text);

 private:
  void draw_status();

  bool stdout_is_terminal_;
  bool stderr_is_terminal_;
  bool shows_status_;
  std::string status_;
  int lost_output_ = 0;
  bool stdout_is_read_ = true;
  bool stderr_is_read_ = true;
};

// One stream of one rank on its way to the screen.
class RankStream {
 public:
  // Reads from `source`, a non-blocking pipe that it owns; writes to descriptor `target`.
  // `may_set_status` is for one rank only: the statuses of the others are dropped.
  RankStream(Screen* screen, int source, int target, std::string prefix, bool may_set_status);
  ~RankStream();
  RankStream(RankStream&& other) noexcept;
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  int source() const { return source_; }  // -1: at its end
  // Reads what is there and writes whole lines of it.
  void pump();
  // Reads and writes what is there to the last byte, and closes the source, even if a process still
  // holds its other end.
  void drain();

 private:
  void write(const std::string& lines);
  void finish();
  void close_source();
  void take(std::string_view bytes, std::string* lines);
  void end_line(std::string* lines);

  Screen* screen_;
  int source_;
  int target_;
  std::string prefix_;
  bool cuts_status_;  // the target is a terminal: a carriage return ends a status
  bool may_set_status_;
  std::string line_;         // begun, not ended
  bool was_status_ = false;  // line_ ended in a carriage return; a line feed may follow
};

}  // namespace fsdp2::cli
