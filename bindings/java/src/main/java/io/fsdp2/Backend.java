package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What carries a mesh's collectives. */
public enum Backend {
  /** The one that fits the device. */
  AUTO(Raw.FSDP2_BACKEND_AUTO),
  /** Gloo, on CPUs. */
  GLOO(Raw.FSDP2_BACKEND_GLOO),
  /** NCCL, on GPUs. */
  NCCL(Raw.FSDP2_BACKEND_NCCL),
  /** Ranks are threads of this process; rendezvous {@code thread://NAME}. */
  THREAD(Raw.FSDP2_BACKEND_THREAD),
  /** One rank of many that do not exist: for planning. */
  FAKE(Raw.FSDP2_BACKEND_FAKE),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  Backend(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Backend of(int number) {
    for (Backend known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
