package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What a unit did. */
public enum EventKind {
  /** An all-gather was issued. */
  ALL_GATHER(Raw.FSDP2_EVENT_ALL_GATHER),
  /** Its parameters are gathered. */
  UNSHARD(Raw.FSDP2_EVENT_UNSHARD),
  /** They were freed, or cut into slices. */
  RESHARD(Raw.FSDP2_EVENT_RESHARD),
  /** A reduction of gradients was issued. */
  REDUCE_SCATTER(Raw.FSDP2_EVENT_REDUCE_SCATTER),
  /** It is done with this backward. */
  POST_BACKWARD(Raw.FSDP2_EVENT_POST_BACKWARD),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  EventKind(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static EventKind of(int number) {
    for (EventKind known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
