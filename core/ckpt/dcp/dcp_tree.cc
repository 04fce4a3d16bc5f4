#include "core/ckpt/dcp/dcp_tree.h"

#include <optional>
#include <utility>
#include <vector>

#include "core/ckpt/dcp/description.h"
#include "core/ckpt/dcp/detect.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/dcp/item_writer.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

void copy_to_dcp(const TreeCopy& copy) {
  constexpr char kFile[] = "__0_0.distcp";
  PendingDirectory pending(copy.to, replaceable_by_dcp());
  std::vector<DcpEntry> entries;
  DcpPart part{kFile, 0, {}};
  ItemWriter file(pending.path() + "/" + kFile);
  for (const TreeMove& move : copy.moves) {
    DcpEntry entry{name_of(move.path), move.path, std::nullopt, {}};
    Box chunk;
    WrittenItem written;
    if (move.from->dtype) {
      entry.tensor = ChunkedTensor{*move.from->dtype, move.from->shape, {}};
      chunk = {std::vector<int64_t>(move.from->shape.size(), 0), move.from->shape};
      const at::Tensor tensor = read_whole(copy.source, *move.from);
      written = file.append_tensor(tensor);
      copy.note_written(tensor);
    } else {
      const PythonValue value = copy.source.read_object(*move.from);
      written = file.append([&](const ByteSink& sink) { write_object_item(sink, value); });
    }
    part.items.push_back({entries.size(), std::move(chunk), std::move(written)});
    entries.push_back(std::move(entry));
  }
  file.finish();
  part.bytes = file.bytes_written();
  write_dcp_description(pending.path(), std::move(entries), {part});
  copy.check_source();
  pending.commit();
}

}  // namespace fsdp2::ckpt
