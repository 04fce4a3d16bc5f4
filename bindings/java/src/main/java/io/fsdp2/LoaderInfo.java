package io.fsdp2;

import io.fsdp2.internal.fsdp2_loader_info;

/**
 * How much a loader has to read.
 *
 * @param windows of all files, each counted once
 * @param stepsPerEpoch that they are enough for, rounded up; down if the last ones are dropped
 * @param images in all windows
 */
public record LoaderInfo(long windows, long stepsPerEpoch, long images) {
  static LoaderInfo of(fsdp2_loader_info raw) {
    return new LoaderInfo(raw.getN_windows(), raw.getSteps_per_epoch(), raw.getN_images());
  }
}
