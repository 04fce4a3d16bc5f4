/**
 * Fully sharded data parallel training: FSDP2 of PyTorch, over libfsdp2 and LibTorch.
 *
 * <p>{@link io.fsdp2.Mesh} joins the ranks, {@link io.fsdp2.Module} is the model, {@link
 * io.fsdp2.Shard} cuts it over the ranks, {@link io.fsdp2.Optimizer}, {@link io.fsdp2.Loader} and
 * {@link io.fsdp2.Step} train it, {@link io.fsdp2.Checkpoint} saves it. Names are those of the C
 * headers: {@code fsdp2_shard_get_stats} is {@link io.fsdp2.Shard#getStats}, and what C says about
 * a function holds here, too.
 *
 * <p>Objects end with close(), in any order: what was made of an object keeps what it needs alive.
 * One that is not closed ends with the garbage collector. Any thread may make any call, but only
 * one at a time may use a model, a loader, or a mesh's collective calls. A call that fails throws
 * {@link io.fsdp2.FsdpException}.
 */
package io.fsdp2;
