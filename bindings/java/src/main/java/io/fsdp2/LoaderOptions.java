package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_loader_options;

/**
 * How a loader cuts a file of tokens into batches. What a builder is not told keeps the library's
 * default.
 */
public final class LoaderOptions {
  private final TokenFormat format;
  private final Order order;
  private final int accumulate;
  private final long sequenceLength;
  private final long globalBatch;
  private final long vocabSize;
  private final long seed;
  private final boolean cutLongRecords;
  private final boolean skipBadRecords;
  private final boolean dropLast;
  private final int readAhead;
  private final String tokenizer;
  private final String visionModel;

  private LoaderOptions(Builder builder) {
    format = builder.format;
    order = builder.order;
    accumulate = builder.accumulate;
    sequenceLength = builder.sequenceLength;
    globalBatch = builder.globalBatch;
    vocabSize = builder.vocabSize;
    seed = builder.seed;
    cutLongRecords = builder.cutLongRecords;
    skipBadRecords = builder.skipBadRecords;
    dropLast = builder.dropLast;
    readAhead = builder.readAhead;
    tokenizer = builder.tokenizer;
    visionModel = builder.visionModel;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** What the file looks like. */
  public TokenFormat format() {
    return format;
  }

  /** The order of its windows. */
  public Order order() {
    return order;
  }

  /** Micro batches per step. */
  public int accumulate() {
    return accumulate;
  }

  /** Tokens of a window. */
  public long sequenceLength() {
    return sequenceLength;
  }

  /** Windows per step, over all ranks and micro batches. */
  public long globalBatch() {
    return globalBatch;
  }

  /** Every token must be below it. */
  public long vocabSize() {
    return vocabSize;
  }

  /** The seed of the shuffled order. */
  public long seed() {
    return seed;
  }

  /** Whether the end of a record is left out that does not fit a window. */
  public boolean cutLongRecords() {
    return cutLongRecords;
  }

  /** Whether lines are left out that are no record, or have no answer. */
  public boolean skipBadRecords() {
    return skipBadRecords;
  }

  /** Whether a shuffled epoch leaves out the windows that do not fill a step. */
  public boolean dropLast() {
    return dropLast;
  }

  /** Batches that a thread prepares while the caller computes. */
  public int readAhead() {
    return readAhead;
  }

  /** A tokenizer.json, or a directory with one; null: the tokens of texts and records are bytes. */
  public String tokenizer() {
    return tokenizer;
  }

  /** The config.json of the model, or the directory with it; null: records have no images. */
  public String visionModel() {
    return visionModel;
  }

  /** The caller closes it. */
  fsdp2_loader_options toRaw() {
    fsdp2_loader_options raw = new fsdp2_loader_options();
    raw.setFormat(format.number());
    raw.setOrder(order.number());
    raw.setAccumulate(accumulate);
    raw.setSequence_length(sequenceLength);
    raw.setGlobal_batch(globalBatch);
    raw.setVocab_size(vocabSize);
    raw.setSeed(seed);
    raw.setCut_long_records(cutLongRecords ? 1 : 0);
    raw.setSkip_bad_records(skipBadRecords ? 1 : 0);
    raw.setDrop_last(dropLast ? 1 : 0);
    raw.setRead_ahead(readAhead);
    raw.setTokenizer(tokenizer);
    raw.setVisionModel(visionModel);
    return raw;
  }

  /** Makes {@link LoaderOptions}. */
  public static final class Builder {
    private TokenFormat format;
    private Order order;
    private int accumulate;
    private long sequenceLength;
    private long globalBatch;
    private long vocabSize;
    private long seed;
    private boolean cutLongRecords;
    private boolean skipBadRecords;
    private boolean dropLast;
    private int readAhead;
    private String tokenizer;
    private String visionModel;

    private Builder() {
      try (fsdp2_loader_options raw = new fsdp2_loader_options()) {
        Raw.fsdp2_loader_options_init(raw, raw.getStruct_size());
        format = TokenFormat.of(raw.getFormat());
        order = Order.of(raw.getOrder());
        accumulate = raw.getAccumulate();
        sequenceLength = raw.getSequence_length();
        globalBatch = raw.getGlobal_batch();
        vocabSize = raw.getVocab_size();
        seed = raw.getSeed();
        cutLongRecords = raw.getCut_long_records() != 0;
        skipBadRecords = raw.getSkip_bad_records() != 0;
        dropLast = raw.getDrop_last() != 0;
        readAhead = raw.getRead_ahead();
      }
    }

    /** What the file looks like. */
    public Builder format(TokenFormat format) {
      this.format = format;
      return this;
    }

    /** The order of its windows. */
    public Builder order(Order order) {
      this.order = order;
      return this;
    }

    /** Micro batches per step. */
    public Builder accumulate(int accumulate) {
      this.accumulate = accumulate;
      return this;
    }

    /** Tokens of a window. */
    public Builder sequenceLength(long sequenceLength) {
      this.sequenceLength = sequenceLength;
      return this;
    }

    /** Windows per step, over all ranks and micro batches. */
    public Builder globalBatch(long globalBatch) {
      this.globalBatch = globalBatch;
      return this;
    }

    /** Every token must be below it. */
    public Builder vocabSize(long vocabSize) {
      this.vocabSize = vocabSize;
      return this;
    }

    /** The seed of the shuffled order. */
    public Builder seed(long seed) {
      this.seed = seed;
      return this;
    }

    /** Whether the end of a record is left out that does not fit a window. */
    public Builder cutLongRecords(boolean cutLongRecords) {
      this.cutLongRecords = cutLongRecords;
      return this;
    }

    /** Whether lines are left out that are no record, or have no answer. */
    public Builder skipBadRecords(boolean skipBadRecords) {
      this.skipBadRecords = skipBadRecords;
      return this;
    }

    /** Whether a shuffled epoch leaves out the windows that do not fill a step. */
    public Builder dropLast(boolean dropLast) {
      this.dropLast = dropLast;
      return this;
    }

    /** Batches that a thread prepares while the caller computes. */
    public Builder readAhead(int readAhead) {
      this.readAhead = readAhead;
      return this;
    }

    /** A tokenizer.json, or a directory with one, for the tokens of texts and records. */
    public Builder tokenizer(String tokenizer) {
      this.tokenizer = tokenizer;
      return this;
    }

    /** The config.json of a model that sees images, or the directory with it. */
    public Builder visionModel(String visionModel) {
      this.visionModel = visionModel;
      return this;
    }

    /** Makes the options as they are now. */
    public LoaderOptions build() {
      return new LoaderOptions(this);
    }
  }
}
