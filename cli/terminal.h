// What the commands ask the terminal, and how they draw a line on it that updates itself.
#pragma once

namespace fsdp2::cli {

bool is_terminal(int fd);

// The width of the terminal behind `fd`, on which a line can update itself: 80 if it does not say,
// 0 if `fd` is not a terminal, or one that understands nothing but text (TERM=dumb).
int terminal_columns(int fd);

// Clears from the cursor to the end of the line.
inline constexpr char kClearToEnd[] = "\033[K";

// The environment variable in which `fsdp2 run` tells rank 0 how wide its status line is: what rank
// 0 prints before a carriage return is then shown on it.
inline constexpr char kStatusColumns[] = "FSDP2_STATUS_COLUMNS";

// The environment variable by which `fsdp2 run` tells ranks that it puts their numbers before the
// lines of their standard error.
inline constexpr char kRankIsShown[] = "FSDP2_RANK_IS_SHOWN";

}  // namespace fsdp2::cli
