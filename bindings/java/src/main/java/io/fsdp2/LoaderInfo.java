package io.fsdp2;

import io.fsdp2.internal.fsdp2_loader_info;

/**
 * How much a loader has to read.
 *
 * @param windows of all files, each counted once
 * @param stepsPerEpoch that they are enough for, rounded up; down if the last ones are dropped
 * @param images in all windows
 * @param videos in all windows
 * @param videoInputs of a forward that the videos of a batch are: 3 for qwen2_5_vl, 2 for qwen3_vl,
 *     0 without videos
 */
public record LoaderInfo(
    long windows, long stepsPerEpoch, long images, long videos, long videoInputs) {
  static LoaderInfo of(fsdp2_loader_info raw) {
    return new LoaderInfo(
        raw.getN_windows(),
        raw.getSteps_per_epoch(),
        raw.getN_images(),
        raw.getN_videos(),
        raw.getN_video_inputs());
  }
}
