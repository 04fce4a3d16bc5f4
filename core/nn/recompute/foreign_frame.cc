#include "core/nn/recompute/foreign_frame.h"

namespace fsdp2::nn {

namespace {

thread_local int foreign_frames = 0;

}  // namespace

ForeignFrame::ForeignFrame() { ++foreign_frames; }

ForeignFrame::~ForeignFrame() { --foreign_frames; }

int ForeignFrame::depth() { return foreign_frames; }

}  // namespace fsdp2::nn
