// The records of a TensorBoard event file.
//
// The file is a sequence of records, everything little-endian:
//   uint64 length | uint32 masked CRC-32C of the length | bytes | uint32 masked CRC-32C of the
//   bytes
// (tensorflow/core/lib/io/record_writer.h; the mask: tensorflow/core/lib/hash/crc32c.h). The bytes
// of a record are one protobuf message `Event` (tensorflow/core/util/event.proto, which has its
// scalars from tensorflow/core/framework/summary.proto). Few fields are needed, so they are encoded
// here, as https://protobuf.dev/programming-guides/encoding says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp2::cli {

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

// Each event has a time, in seconds since 1970.
std::string version_event(double time);  // the first of a file
// Takes all that earlier files of the directory have of this step and later ones off the page.
std::string restart_event(double time, int64_t step);
std::string scalars_event(double time, int64_t step, const Scalars& scalars);

// The record that holds an event.
std::string record_of(std::string_view event);

// The CRC with Castagnoli's polynomial, as iSCSI has it (RFC 3720).
uint32_t crc32c(std::string_view bytes);

}  // namespace fsdp2::cli
