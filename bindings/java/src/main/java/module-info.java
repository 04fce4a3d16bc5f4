/** Fully sharded data parallel training from Java, over libfsdp2. */
module io.fsdp2 {
  exports io.fsdp2;
}
