// The videos of a record: where its text has them, and their pixels. record_images.h gives them
// their tokens.
#pragma once

#include <string>
#include <vector>

#include "core/train/data/images/video_file.h"
#include "core/train/data/record.h"
#include "core/train/data/record_tokens.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

// The videos of these sources; their tokens have no place yet. Errors: as find_images.
std::vector<RecordVideo> find_videos(const std::vector<VideoSource>& sources,
                                     const RecordVision& vision);

// Compares the places for videos in the record's texts with the videos, takes away those of an
// answer that was left out and, for a model that has frames apart, writes a place for each frame
// there, with its time before it. Returns these times with the starts after them, in the order of
// the text. Error: kCorruptData for another number of places than of videos.
std::vector<std::string> write_videos(std::vector<RecordVideo>* videos, const VisionRules& rules,
                                      Record* record);

// Reads the pixels of videos into a batch, in this order. Nothing where there are none.
void read_video_pixels(const std::vector<RecordVideo>& videos, const VisionRules& rules,
                       TokenBatch* batch);

}  // namespace fsdp2::train
