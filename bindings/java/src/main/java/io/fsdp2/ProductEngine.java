package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What computes the fp32 products of linear layers on a CPU. */
public enum ProductEngine {
  /** The faster one, measured once where it is not known. */
  AUTO(Raw.FSDP2_PRODUCT_ENGINE_AUTO),
  /** Intel MKL. */
  MKL(Raw.FSDP2_PRODUCT_ENGINE_MKL),
  /** oneDNN. */
  ONEDNN(Raw.FSDP2_PRODUCT_ENGINE_ONEDNN);

  private final int number;

  ProductEngine(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static ProductEngine of(int number) {
    for (ProductEngine known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("ProductEngine: no number " + number);
  }
}
