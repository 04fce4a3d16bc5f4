package io.fsdp2;

import io.fsdp2.internal.Raw;

/** Where a tensor's memory is. */
public enum DeviceType {
  /** Host memory. */
  CPU(Raw.FSDP2_DEVICE_CPU),
  /** Memory of an NVIDIA GPU. */
  CUDA(Raw.FSDP2_DEVICE_CUDA),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  DeviceType(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static DeviceType of(int number) {
    for (DeviceType known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
