package io.fsdp2.internal;

/**
 * What travels in place of a parameter's rows; {@code fsdp2_pre_all_gather_fn} and {@code
 * fsdp2_post_all_gather_fn} of hook.h.
 */
public interface AllGatherExtension {
  /**
   * @param gather what is gathered
   * @param chunk a tensor: this rank's rows, 1-D, padded to the same length on every rank
   * @return the tensor that is sent, 1-D, of one size and dtype on all ranks; the library's from
   *     now
   */
  long preAllGather(GatherInfo gather, long chunk) throws Exception;

  /**
   * @param gather what is gathered
   * @param pieces a tensor: what the ranks have sent, [shardRanks, n]
   * @param chunks a tensor to write: the ranks' chunks in compute dtype, [shardRanks, length]
   */
  void postAllGather(GatherInfo gather, long pieces, long chunks) throws Exception;
}
