package io.fsdp2;

import io.fsdp2.internal.fsdp2_group_info;

/**
 * The ranks whose coordinates differ in one dim only.
 *
 * @param size how many there are
 * @param rank this rank within the group
 * @param id the same for the same group, however it was reached
 */
public record GroupInfo(int size, int rank, long id) {
  static GroupInfo of(fsdp2_group_info raw) {
    return new GroupInfo(raw.getSize(), raw.getRank(), raw.getId());
  }
}
