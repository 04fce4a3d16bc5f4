package io.fsdp2;

import io.fsdp2.internal.Raw;

/**
 * What forward leaves of a unit's gathered parameters for backward. Beside these numbers, n of at
 * least 2 keeps a 1/n slice, which is then gathered over n neighbours.
 */
public final class Reshard {
  /** Nothing, but the root keeps everything. */
  public static final int AUTO = Raw.FSDP2_RESHARD_AUTO;

  /** Nothing: PyTorch's True. */
  public static final int ALWAYS = Raw.FSDP2_RESHARD_ALWAYS;

  /** Everything: PyTorch's False. */
  public static final int NEVER = Raw.FSDP2_RESHARD_NEVER;

  private Reshard() {}
}
