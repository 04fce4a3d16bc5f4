package io.fsdp2;

import io.fsdp2.internal.Raw;

/**
 * What the fp32 products of linear layers may round on a CPU, by the words of PyTorch's
 * torch.set_float32_matmul_precision.
 */
public enum MatmulPrecision {
  /** Nothing: strict fp32. */
  HIGHEST(Raw.FSDP2_MATMUL_HIGHEST),
  /** Operands are sums of two bf16 numbers where this CPU is measured to be faster at that. */
  HIGH(Raw.FSDP2_MATMUL_HIGH),
  /** Operands are rounded to bf16 where this CPU is measured to be faster at that. */
  MEDIUM(Raw.FSDP2_MATMUL_MEDIUM),
  /** As HIGH, however slow. */
  HIGH_ALWAYS(Raw.FSDP2_MATMUL_HIGH_ALWAYS),
  /** As MEDIUM, however slow. */
  MEDIUM_ALWAYS(Raw.FSDP2_MATMUL_MEDIUM_ALWAYS);

  private final int number;

  MatmulPrecision(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static MatmulPrecision of(int number) {
    for (MatmulPrecision known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("MatmulPrecision: no number " + number);
  }
}
