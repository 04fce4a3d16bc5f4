package io.fsdp2;

import io.fsdp2.internal.Raw;

/** The forms of a checkpoint. */
public enum CheckpointFormat {
  /** A directory in PyTorch's DCP format with everything; each rank writes its part. */
  SHARDED(Raw.FSDP2_CHECKPOINT_SHARDED),
  /** One file with the model. */
  SAFETENSORS(Raw.FSDP2_CHECKPOINT_SAFETENSORS),
  /** One file with the model, for {@code torch.load}. */
  PTH(Raw.FSDP2_CHECKPOINT_PTH),
  /** config.json and safetensors, as transformers has it. */
  MODEL_DIRECTORY(Raw.FSDP2_CHECKPOINT_MODEL_DIRECTORY),
  /** A directory with one .pth file per rank. */
  PTH_PER_RANK(Raw.FSDP2_CHECKPOINT_PTH_PER_RANK);

  private final int number;

  CheckpointFormat(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static CheckpointFormat of(int number) {
    for (CheckpointFormat known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("CheckpointFormat: no number " + number);
  }
}
