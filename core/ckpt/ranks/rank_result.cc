#include "core/ckpt/ranks/rank_result.h"

#include <cstdint>

#include "core/ckpt/ranks/note_bytes.h"

namespace fsdp2::ckpt {

namespace {

void add_part(NoteWriter& out, const DcpPart& part) {
  out.text(part.file);
  out.number(part.bytes);
  out.count(part.items.size());
  for (const DcpPart::Item& item : part.items) {
    out.count(item.entry);
    out.numbers(item.chunk.offsets);
    out.numbers(item.chunk.sizes);
    out.number(item.written.offset);
    out.number(item.written.bytes);
    out.numbers(item.written.blocks);
  }
}

DcpPart next_part(NoteReader& in) {
  DcpPart part;
  part.file = in.text();
  part.bytes = in.number();
  part.items.resize(in.count());
  for (DcpPart::Item& item : part.items) {
    item.entry = static_cast<size_t>(in.number());
    item.chunk.offsets = in.numbers<int64_t>();
    item.chunk.sizes = in.numbers<int64_t>();
    item.written.offset = in.number();
    item.written.bytes = in.number();
    item.written.blocks = in.numbers<uint64_t>();
  }
  return part;
}

}  // namespace

std::string encode_result(const RankResult& result) {
  NoteWriter out;
  out.number(result.error ? 1 : 0);
  if (result.error) {
    out.error(*result.error);
    return out.take();
  }
  out.count(result.parts.size());
  for (const DcpPart& part : result.parts) {
    add_part(out, part);
  }
  return out.take();
}

RankResult decode_result(std::string_view bytes) {
  NoteReader in(bytes);
  RankResult result;
  if (in.number() != 0) {
    result.error = in.error();
    return result;
  }
  result.parts.resize(in.count());
  for (DcpPart& part : result.parts) {
    part = next_part(in);
  }
  return result;
}

}  // namespace fsdp2::ckpt
