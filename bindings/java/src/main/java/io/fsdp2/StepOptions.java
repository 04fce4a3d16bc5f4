package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_step_options;

/** What a training step does. What a builder is not told keeps the library's default. */
public final class StepOptions {
  private final int accumulate;
  private final boolean accumulateLast;
  private final boolean vocabularyLast;
  private final boolean cudaGraph;
  private final Schedule schedule;
  private final long warmupSteps;
  private final long totalSteps;
  private final double minLrRatio;
  private final double maxGradNorm;
  private final double lossScale;
  private final long lossScaleInterval;
  private final NotFinite notFinite;
  private final int maxSkipsInRow;
  private final LossMean lossMean;
  private final int lossChunk;
  private final double startLrRatio;
  private final long decaySteps;
  private final boolean updateInBackward;

  private StepOptions(Builder builder) {
    accumulate = builder.accumulate;
    accumulateLast = builder.accumulateLast;
    vocabularyLast = builder.vocabularyLast;
    cudaGraph = builder.cudaGraph;
    schedule = builder.schedule;
    warmupSteps = builder.warmupSteps;
    totalSteps = builder.totalSteps;
    minLrRatio = builder.minLrRatio;
    maxGradNorm = builder.maxGradNorm;
    lossScale = builder.lossScale;
    lossScaleInterval = builder.lossScaleInterval;
    notFinite = builder.notFinite;
    maxSkipsInRow = builder.maxSkipsInRow;
    lossMean = builder.lossMean;
    lossChunk = builder.lossChunk;
    startLrRatio = builder.startLrRatio;
    decaySteps = builder.decaySteps;
    updateInBackward = builder.updateInBackward;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Micro batches per step. */
  public int accumulate() {
    return accumulate;
  }

  /** Reduce gradients at the last micro batch only. */
  public boolean accumulateLast() {
    return accumulateLast;
  }

  /**
   * Reduce the gradients of units with an embedding table or the head at the last micro batch only.
   */
  public boolean vocabularyLast() {
    return vocabularyLast;
  }

  /** On GPUs: steps of one shape are replays of a CUDA graph. Not yet run on a GPU. */
  public boolean cudaGraph() {
    return cudaGraph;
  }

  /** The learning rate after the warm-up. */
  public Schedule schedule() {
    return schedule;
  }

  /** Steps in which the learning rate rises. */
  public long warmupSteps() {
    return warmupSteps;
  }

  /** Length of the schedule, warm-up included. */
  public long totalSteps() {
    return totalSteps;
  }

  /** The final learning rate, as a fraction of the optimizer's. */
  public double minLrRatio() {
    return minLrRatio;
  }

  /** Gradients are clipped to it; 0: they are not. */
  public double maxGradNorm() {
    return maxGradNorm;
  }

  /** Where dynamic loss scaling begins; 0: none. */
  public double lossScale() {
    return lossScale;
  }

  /** Steps without overflow that double the scale. */
  public long lossScaleInterval() {
    return lossScaleInterval;
  }

  /** What becomes of a step that is not finite. */
  public NotFinite notFinite() {
    return notFinite;
  }

  /** One more skipped step is an error; 0: no limit. */
  public int maxSkipsInRow() {
    return maxSkipsInRow;
  }

  /** What the loss is the mean of. */
  public LossMean lossMean() {
    return lossMean;
  }

  /**
   * How many labels of a language model have logits at a time; 1024 is usual, and fewer need less
   * memory and more time. 0: by the vocabulary.
   */
  public int lossChunk() {
    return lossChunk;
  }

  /** Where the warm-up begins, as a fraction of the optimizer's learning rate. */
  public double startLrRatio() {
    return startLrRatio;
  }

  /** Steps after which the schedule is at its final learning rate; 0: those of the schedule. */
  public long decaySteps() {
    return decaySteps;
  }

  /**
   * Update each unit as soon as its gradients are reduced, and free them: the same results in less
   * memory. It excludes what needs all gradients first, and an error amid the updates asks for a
   * checkpoint (fsdp2_step_options in step.h).
   */
  public boolean updateInBackward() {
    return updateInBackward;
  }

  /** The caller closes it. */
  fsdp2_step_options toRaw() {
    fsdp2_step_options raw = new fsdp2_step_options();
    raw.setAccumulate(accumulate);
    raw.setAccumulate_last(accumulateLast ? 1 : 0);
    raw.setVocabulary_last(vocabularyLast ? 1 : 0);
    raw.setCuda_graph(cudaGraph ? 1 : 0);
    raw.setSchedule(schedule.number());
    raw.setWarmup_steps(warmupSteps);
    raw.setTotal_steps(totalSteps);
    raw.setMin_lr_ratio(minLrRatio);
    raw.setMax_grad_norm(maxGradNorm);
    raw.setLoss_scale(lossScale);
    raw.setLoss_scale_interval(lossScaleInterval);
    raw.setNot_finite(notFinite.number());
    raw.setMax_skips_in_row(maxSkipsInRow);
    raw.setLoss_mean(lossMean.number());
    raw.setLoss_chunk(lossChunk);
    raw.setStart_lr_ratio(startLrRatio);
    raw.setDecay_steps(decaySteps);
    raw.setUpdate_in_backward(updateInBackward ? 1 : 0);
    return raw;
  }

  /** Makes {@link StepOptions}. */
  public static final class Builder {
    private int accumulate;
    private boolean accumulateLast;
    private boolean vocabularyLast;
    private boolean cudaGraph;
    private Schedule schedule;
    private long warmupSteps;
    private long totalSteps;
    private double minLrRatio;
    private double maxGradNorm;
    private double lossScale;
    private long lossScaleInterval;
    private NotFinite notFinite;
    private int maxSkipsInRow;
    private LossMean lossMean;
    private int lossChunk;
    private double startLrRatio;
    private long decaySteps;
    private boolean updateInBackward;

    private Builder() {
      try (fsdp2_step_options raw = new fsdp2_step_options()) {
        Raw.fsdp2_step_options_init(raw, raw.getStruct_size());
        accumulate = raw.getAccumulate();
        accumulateLast = raw.getAccumulate_last() != 0;
        vocabularyLast = raw.getVocabulary_last() != 0;
        cudaGraph = raw.getCuda_graph() != 0;
        schedule = Schedule.of(raw.getSchedule());
        warmupSteps = raw.getWarmup_steps();
        totalSteps = raw.getTotal_steps();
        minLrRatio = raw.getMin_lr_ratio();
        maxGradNorm = raw.getMax_grad_norm();
        lossScale = raw.getLoss_scale();
        lossScaleInterval = raw.getLoss_scale_interval();
        notFinite = NotFinite.of(raw.getNot_finite());
        maxSkipsInRow = raw.getMax_skips_in_row();
        lossMean = LossMean.of(raw.getLoss_mean());
        lossChunk = raw.getLoss_chunk();
        startLrRatio = raw.getStart_lr_ratio();
        decaySteps = raw.getDecay_steps();
        updateInBackward = raw.getUpdate_in_backward() != 0;
      }
    }

    /** Micro batches per step. */
    public Builder accumulate(int accumulate) {
      this.accumulate = accumulate;
      return this;
    }

    /** Reduce gradients at the last micro batch only. */
    public Builder accumulateLast(boolean accumulateLast) {
      this.accumulateLast = accumulateLast;
      return this;
    }

    /**
     * Reduce the gradients of units with an embedding table or the head at the last micro batch
     * only.
     */
    public Builder vocabularyLast(boolean vocabularyLast) {
      this.vocabularyLast = vocabularyLast;
      return this;
    }

    /**
     * On GPUs: steps of one shape are replays of a CUDA graph. Excludes {@link #updateInBackward}.
     * Not yet run on a GPU.
     */
    public Builder cudaGraph(boolean cudaGraph) {
      this.cudaGraph = cudaGraph;
      return this;
    }

    /** The learning rate after the warm-up. */
    public Builder schedule(Schedule schedule) {
      this.schedule = schedule;
      return this;
    }

    /** Steps in which the learning rate rises. */
    public Builder warmupSteps(long warmupSteps) {
      this.warmupSteps = warmupSteps;
      return this;
    }

    /** Length of the schedule, warm-up included. */
    public Builder totalSteps(long totalSteps) {
      this.totalSteps = totalSteps;
      return this;
    }

    /** The final learning rate, as a fraction of the optimizer's. */
    public Builder minLrRatio(double minLrRatio) {
      this.minLrRatio = minLrRatio;
      return this;
    }

    /** Gradients are clipped to it; 0: they are not. */
    public Builder maxGradNorm(double maxGradNorm) {
      this.maxGradNorm = maxGradNorm;
      return this;
    }

    /** Where dynamic loss scaling begins; 0: none. */
    public Builder lossScale(double lossScale) {
      this.lossScale = lossScale;
      return this;
    }

    /** Steps without overflow that double the scale. */
    public Builder lossScaleInterval(long lossScaleInterval) {
      this.lossScaleInterval = lossScaleInterval;
      return this;
    }

    /** What becomes of a step that is not finite. */
    public Builder notFinite(NotFinite notFinite) {
      this.notFinite = notFinite;
      return this;
    }

    /** One more skipped step is an error; 0: no limit. */
    public Builder maxSkipsInRow(int maxSkipsInRow) {
      this.maxSkipsInRow = maxSkipsInRow;
      return this;
    }

    /** What the loss is the mean of. */
    public Builder lossMean(LossMean lossMean) {
      this.lossMean = lossMean;
      return this;
    }

    /**
     * How many labels of a language model have logits at a time; 1024 is usual, and fewer need less
     * memory and more time. 0: by the vocabulary.
     */
    public Builder lossChunk(int lossChunk) {
      this.lossChunk = lossChunk;
      return this;
    }

    /** Where the warm-up begins, as a fraction of the optimizer's learning rate. */
    public Builder startLrRatio(double startLrRatio) {
      this.startLrRatio = startLrRatio;
      return this;
    }

    /** Steps after which the schedule is at its final learning rate; 0: those of the schedule. */
    public Builder decaySteps(long decaySteps) {
      this.decaySteps = decaySteps;
      return this;
    }

    /**
     * Update each unit as soon as its gradients are reduced, and free them: the same results in
     * less memory. It excludes what needs all gradients first, and an error amid the updates asks
     * for a checkpoint (fsdp2_step_options in step.h).
     */
    public Builder updateInBackward(boolean updateInBackward) {
      this.updateInBackward = updateInBackward;
      return this;
    }

    /** Makes the options as they are now. */
    public StepOptions build() {
      return new StepOptions(this);
    }
  }
}
