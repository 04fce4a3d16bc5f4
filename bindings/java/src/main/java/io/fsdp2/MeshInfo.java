package io.fsdp2;

import io.fsdp2.internal.fsdp2_mesh_info;
import java.util.Arrays;

/**
 * A mesh, and this rank in it.
 *
 * @param backend what carries its collectives
 * @param rank this rank in the job
 * @param worldSize ranks of the mesh
 * @param localRank this rank on its machine
 * @param shape sizes of the dims
 * @param coordinate this rank's place in each dim
 */
public record MeshInfo(
    Backend backend, int rank, int worldSize, int localRank, long[] shape, long[] coordinate) {
  static MeshInfo of(fsdp2_mesh_info raw) {
    return new MeshInfo(
        Backend.of(raw.getBackend()),
        raw.getRank(),
        raw.getWorld_size(),
        raw.getLocal_rank(),
        Arrays.copyOf(raw.getShape(), raw.getN_dims()),
        Arrays.copyOf(raw.getCoordinate(), raw.getN_dims()));
  }
}
