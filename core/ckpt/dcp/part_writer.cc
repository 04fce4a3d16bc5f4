#include "core/ckpt/dcp/part_writer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/quiet_thread.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/dcp/item_writer.h"

namespace fsdp2::ckpt {

namespace {

using Items = std::vector<const PartItem*>;

// Into the file that has least so far.
std::vector<Items> spread(const std::vector<PartItem>& items, const PartFiles& files) {
  const size_t count = files.file_per_item ? items.size() : static_cast<size_t>(files.threads);
  std::vector<Items> spread(std::max<size_t>(count, 1));
  std::vector<int64_t> bytes(spread.size(), 0);
  for (const PartItem& item : items) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    spread[static_cast<size_t>(least - bytes.begin())].push_back(&item);
    *least += 1 + bytes_of(item);
  }
  return spread;
}

DcpPart write_file(const std::string& directory, const std::string& name, const Items& items,
                   const std::function<void(int64_t bytes)>& progress) {
  ItemWriter file(directory + "/" + name);
  // What describes the tensors comes on top: less than this is never written.
  file.preallocate(
      std::accumulate(items.begin(), items.end(), int64_t{0},
                      [](int64_t sum, const PartItem* item) { return sum + bytes_of(*item); }));
  DcpPart part{name, 0, {}};
  for (const PartItem* item : items) {
    if (item->local.defined()) {
      part.items.push_back({item->entry,
                            {item->offsets, item->local.sizes().vec()},
                            file.append_tensor(item->local)});
    } else {
      const auto write = [&](const ByteSink& sink) { write_object_item(sink, item->object); };
      part.items.push_back({item->entry, {}, file.append(write)});
    }
    progress(bytes_of(*item));
  }
  file.finish();
  progress(0);
  part.bytes = file.bytes_written();
  return part;
}

// Runs work(0), work(1), ... on as many threads, the first on this one, and those that no thread
// can be had for.
void run_on_threads(size_t count, const std::function<void(size_t index)>& work) {
  std::vector<std::exception_ptr> errors(count);
  const auto run = [&](size_t index) {
    const at::NoGradGuard no_grad;
    try {
      work(index);
    } catch (...) {
      errors[index] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  size_t next = 1;
  try {
    for (; next < count; ++next) {
      threads.push_back(start_quiet_thread([&run, next] { run(next); }));
    }
  } catch (const std::exception&) {  // those that run must be joined, whatever happens
  }
  run(0);
  for (; next < count; ++next) {
    run(next);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace

std::vector<DcpPart> write_part(const std::string& directory, int rank,
                                const std::vector<PartItem>& items, const PartFiles& files,
                                const std::function<void(int64_t bytes)>& progress) {
  const std::vector<Items> contents = spread(items, files);
  std::vector<DcpPart> parts(contents.size());
  const size_t threads = std::min(static_cast<size_t>(files.threads), contents.size());
  run_on_threads(threads, [&](size_t thread) {
    for (size_t i = thread; i < contents.size(); i += threads) {
      parts[i] =
          write_file(directory, fmt::format("__{}_{}.distcp", rank, i), contents[i], progress);
    }
  });
  return parts;
}

}  // namespace fsdp2::ckpt
