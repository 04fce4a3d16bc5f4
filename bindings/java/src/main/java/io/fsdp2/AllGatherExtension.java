package io.fsdp2;

/**
 * What travels in place of a parameter's rows, for example an 8-bit form of them. It runs only
 * where there is something to gather.
 */
public interface AllGatherExtension {
  /**
   * Turns rows into what is sent.
   *
   * @param gather what is gathered
   * @param chunk this rank's rows, 1-D, padded to the same length on every rank
   * @return 1-D, of one size and type on all ranks
   */
  Tensor preAllGather(GatherInfo gather, Tensor chunk) throws Exception;

  /**
   * Turns what the ranks have sent into their rows.
   *
   * @param gather what is gathered
   * @param pieces what the ranks have sent, [shardRanks, n]
   * @param chunks to write: the ranks' chunks in compute dtype, [shardRanks, length]
   */
  void postAllGather(GatherInfo gather, Tensor pieces, Tensor chunks) throws Exception;
}
