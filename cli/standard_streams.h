// The three streams that a program is started with, or without.
#pragma once

namespace fsdp2::cli {

// Takes the numbers of standard streams that are closed. Otherwise the next files to be opened
// would have them, checkpoints and connections among these, and would get what is printed. Reading
// or writing such a stream goes on to fail.
void hold_standard_streams();

// The exit code once all that was printed on standard output is out: 1 instead of 0, with a line on
// standard error, if some of it is lost, as on a disk that is full.
int exit_code_once_printed(int exit_code);

}  // namespace fsdp2::cli
