/* A device mesh: the ranks of a job as an n-D array, row-major, whose dims may have names.
 *
 * The options say who this rank is and where the others are. What they leave open comes from the
 * launcher's environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT (torchrun, fsdp2
 * run, Kubernetes), or Slurm's or Open MPI's variables. With none of them the job has one rank.
 *
 * The group of a dim is the set of ranks whose coordinates differ from this rank's in that dim
 * only. Rank numbers count in the job unless the text says that they count in a group. */
#ifndef FSDP2_MESH_H_
#define FSDP2_MESH_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_BACKEND_AUTO = 0,   /* between GPUs NCCL, else shared memory or Gloo */
  FSDP2_BACKEND_GLOO = 1,   /* through the host, also from GPUs, which ranks then may share */
  FSDP2_BACKEND_NCCL = 2,   /* between GPUs */
  FSDP2_BACKEND_THREAD = 3, /* ranks are threads of this process; rendezvous "thread://NAME" */
  /* This process is one rank of world_size, and the others do not exist: collectives end at once,
   * are counted, and assume that every other rank passes what this one passes. For planning. Needs
   * world_size; rank is 0 unless given; the environment is not read. */
  FSDP2_BACKEND_FAKE = 4
};

typedef struct fsdp2_mesh_options {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank;         /* -1: from the environment */
  int32_t world_size;   /* -1: from the environment */
  int32_t local_rank;   /* -1: from the environment */
  int32_t n_dims;       /* 0: fsdp_size decides */
  const int64_t* shape; /* (opt) n_dims sizes whose product is the world size; one may be -1, for
                           what is left */
  const char* const* names; /* (opt) n_dims distinct dim names; NULL: no names */
  const char* rendezvous;   /* (opt) env:// (default), tcp://host:port, file:///path, thread://name,
                               fake:// */
  int64_t timeout_ms;       /* of every collective */
  /* With n_dims 0. 0, 1, or at least the world size: one dim, "fsdp". Less: "ddp" and "fsdp", of
   * sizes (world_size / fsdp_size, fsdp_size). -1: replicas only, (world_size, 1). 1 does not
   * mean shard groups of one rank, which are -1. */
  int64_t fsdp_size;
  const int32_t* ranks;    /* (opt) with a shape: the ranks of this mesh, row-major, this rank among
                              them; every rank that makes the call passes the table that it is in */
  size_t n_ranks;          /* length of `ranks` */
  const char* device_type; /* (opt) where the mesh's tensors are, without an index: "cpu" (default,
                              unless the job's backend is NCCL), "cuda": the GPU of the local rank,
                              or "auto": that GPU where there is one. CUDA needs libfsdp2_cuda.so
                              beside this library; FSDP2_E_UNSUPPORTED says what is missing.
                              "meta", only with FSDP2_BACKEND_FAKE: tensors have shapes and no
                              values (plan.h) */
  /* With n_dims 0. P > 1: blocks of P consecutive ranks share sequences (Ulysses), see
   * fsdp2_shard_create. The mesh has a last dim "cp" of size P: ("dp", "cp") or, with an fsdp_size
   * of less than the world, a multiple of P, ("ddp", "fsdp", "cp"), of shard groups over the last
   * two. P divides the number of ranks. 0 or 1: they do not. */
  int64_t ulysses_size;
} fsdp2_mesh_options;
/* clang-format off */
#define FSDP2_MESH_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_mesh_options), FSDP2_BACKEND_AUTO, -1, -1, -1, 0, NULL, NULL, NULL, 600000, 0, \
    NULL, 0, NULL, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_mesh_options_init(fsdp2_mesh_options* options, size_t struct_size);

/* [c] Joins the job. Errors: FSDP2_E_INVALID_ARGUMENT (contradictory settings), FSDP2_E_TIMEOUT (a
 * rank did not arrive), FSDP2_E_IO or FSDP2_E_COMM (address in use or unreachable),
 * FSDP2_E_WRONG_STATE: the process's first mesh on GPUs, after a backward without them. LibTorch's
 * autograd counts its devices at the first backward, so make that mesh before. */
FSDP2_CALL fsdp2_mesh_create(const fsdp2_mesh_options* options /*(opt)*/, fsdp2_mesh* out);
/* [c] Creates another mesh over the ranks of `mesh`: all of the job, or fewer if `mesh` is a slice
 * of it. Only n_dims, shape, names, ranks, device_type, fsdp_size and ulysses_size count; the
 * options that say how to join must keep their defaults. */
FSDP2_CALL fsdp2_mesh_create_in(fsdp2_mesh mesh, const fsdp2_mesh_options* options,
                                fsdp2_mesh* out);
/* Creates the 1-D mesh of a group that exists: the group of `dim` of `mesh`. */
FSDP2_CALL fsdp2_mesh_from_group(fsdp2_mesh mesh, int32_t dim, const char* name /*(opt)*/,
                                 fsdp2_mesh* out);
FSDP2_API fsdp2_status fsdp2_mesh_destroy(fsdp2_mesh mesh);
/* Returns another handle to the same mesh; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_mesh_duplicate(fsdp2_mesh mesh, fsdp2_mesh* out);

typedef struct fsdp2_mesh_info {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank, world_size, local_rank, n_dims;
  int64_t shape[FSDP2_MAX_DIMS], coordinate[FSDP2_MAX_DIMS];
} fsdp2_mesh_info;
/* Tells the mesh's backend, dims and ranks, and where this rank is in it. */
FSDP2_CALL fsdp2_mesh_get_info(fsdp2_mesh mesh, fsdp2_mesh_info* out);
/* Returns the name of a dim; it is empty if the dims have none. */
FSDP2_CALL fsdp2_mesh_get_dim_name(fsdp2_mesh mesh, int32_t dim, char* buf, size_t cap,
                                   size_t* needed);
/* Finds a dim by its name. FSDP2_E_NOT_FOUND lists the names that exist. */
FSDP2_CALL fsdp2_mesh_get_dim_index(fsdp2_mesh mesh, const char* name, int32_t* out);
/* Lists all ranks of the mesh, row-major. Writes at most cap of them and sets *needed to their
 * number; more than cap is FSDP2_E_BUFFER_TOO_SMALL. (NULL, 0) only asks for the number. */
FSDP2_CALL fsdp2_mesh_get_ranks(fsdp2_mesh mesh, int32_t* ranks, size_t cap, size_t* needed);
typedef struct fsdp2_group_info {
  uint32_t struct_size;
  int32_t size;
  int32_t rank; /* of this rank within the group: its coordinate in the dim */
  int32_t reserved;
  uint64_t id; /* the same for the same group, however it was reached, while a mesh of it lives */
} fsdp2_group_info;
/* Tells the group of a dim that this rank is in. */
FSDP2_CALL fsdp2_mesh_get_group(fsdp2_mesh mesh, int32_t dim, fsdp2_group_info* out);
/* Like fsdp2_mesh_get_ranks, in group order. */
FSDP2_CALL fsdp2_mesh_get_group_ranks(fsdp2_mesh mesh, int32_t dim, int32_t* ranks, size_t cap,
                                      size_t* needed);
/* Sets *out to 1 if ranks, shape, names and device type are equal. Equal meshes have equal
 * hashes. */
FSDP2_CALL fsdp2_mesh_is_equal(fsdp2_mesh a, fsdp2_mesh b, int32_t* out);
FSDP2_CALL fsdp2_mesh_get_hash(fsdp2_mesh mesh, uint64_t* out);
/* Reserved memory is taken from the device, whether or not a tensor has it now. */
typedef struct fsdp2_device_memory {
  uint32_t struct_size;
  int32_t reserved;
  int64_t allocated_bytes, peak_allocated_bytes; /* of this process; the peak since it began */
  int64_t reserved_bytes, peak_reserved_bytes;
  int64_t free_bytes, total_bytes; /* of the device, for all processes */
} fsdp2_device_memory;
/* Returns what LibTorch's allocator has of the memory of the device that the mesh has on this rank.
 * FSDP2_E_UNSUPPORTED for the host, whose memory the system counts. */
FSDP2_CALL fsdp2_mesh_get_device_memory(fsdp2_mesh mesh, fsdp2_device_memory* out);
/* [c] Chooses a param_dtype (fsdp2_shard_options) that the devices of all ranks compute fast in:
 * FSDP2_DTYPE_BF16 where each has products of bf16 (GPUs from compute capability 8.0 on, CPUs with
 * AVX512_BF16 or AMX); otherwise FSDP2_DTYPE_F16 where all are GPUs, which needs a loss_scale
 * (fsdp2_step_options); otherwise FSDP2_DTYPE_F32. */
FSDP2_CALL fsdp2_mesh_choose_dtype(fsdp2_mesh mesh, int32_t* out);
/* Describes the mesh and this rank: "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)". */
FSDP2_CALL fsdp2_mesh_describe(fsdp2_mesh mesh, char* buf, size_t cap, size_t* needed);
/* Returns the sub-mesh along some dims that this rank is in. Only its own ranks make its collective
 * calls: a pipeline stage of a mesh ("pp", "dp") works on its sub-mesh "dp". The names are in the
 * mesh's order; a name that fsdp2_mesh_flatten has given stands for the dims that it covers. The
 * sub-mesh shares the groups of `mesh`. Errors: FSDP2_E_NOT_FOUND (lists the names that exist),
 * FSDP2_E_INVALID_ARGUMENT (another order). */
FSDP2_CALL fsdp2_mesh_get_submesh(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                                  fsdp2_mesh* out);

/* [c] Makes one dim of several, row-major, with a group of its own. name NULL: the names of the
 * dims, joined by "_". */
FSDP2_CALL fsdp2_mesh_flatten(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                              const char* name /*(opt)*/, fsdp2_mesh* out);
/* Returns the mesh that this one is a sub-mesh of, and which of its dims the sub-mesh has (dims,
 * cap and needed as in fsdp2_mesh_get_ranks). FSDP2_E_NOT_FOUND if this is no sub-mesh. */
FSDP2_CALL fsdp2_mesh_get_root(fsdp2_mesh mesh, int32_t* dims, size_t cap, size_t* needed,
                               fsdp2_mesh* out);

/* [c] Returns once all ranks have called it. */
FSDP2_CALL fsdp2_mesh_barrier(fsdp2_mesh mesh);
enum { FSDP2_REDUCE_SUM = 0, FSDP2_REDUCE_AVERAGE = 1, FSDP2_REDUCE_MAX = 2 };
#define FSDP2_MAX_REDUCED 16777216
/* [c] Reduces n doubles over all ranks, in place: at most FSDP2_MAX_REDUCED. op:
 * FSDP2_REDUCE_... (above). */
FSDP2_CALL fsdp2_mesh_all_reduce(fsdp2_mesh mesh, double* values, size_t n, int32_t op);

/* Tensors along one dim. These calls are collective over the dim's group and blocking, and record
 * no gradients. Dtypes or shapes that do not fit are FSDP2_E_INVALID_ARGUMENT on all ranks of the
 * group, before any data moves. A dim that does not exist, on a mesh of several dims, fails the
 * mesh, which is then spent: nobody knows which group is waiting. Pieces have ceil(n / ranks)
 * elements along tensor_dim; the last ones may have fewer or none. */

/* [c] Overwrites `tensor` with the tensor of the group's first rank. */
FSDP2_CALL fsdp2_mesh_broadcast(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor);
/* [c] Returns this rank's piece, along tensor_dim, of the tensor that the group's first rank
 * passes; the other ranks pass {0}. */
FSDP2_CALL fsdp2_mesh_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole, int32_t tensor_dim,
                              fsdp2_tensor* out);
/* [c] Concatenates all ranks' tensors along tensor_dim, in which their sizes may differ. */
FSDP2_CALL fsdp2_mesh_all_gather(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor piece,
                                 int32_t tensor_dim, fsdp2_tensor* out);
/* [c] Returns this rank's piece, along tensor_dim, of the sum or average of all ranks' tensors. op:
 * FSDP2_REDUCE_SUM or _AVERAGE. */
FSDP2_CALL fsdp2_mesh_reduce_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                     int32_t tensor_dim, int32_t op, fsdp2_tensor* out);
/* [c] Reduces `tensor` over the group, in place. op: FSDP2_REDUCE_... (above). */
FSDP2_CALL fsdp2_mesh_all_reduce_tensor(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor,
                                        int32_t op);

/* [c] Compares a text of "key=value" lines between the ranks. If the texts differ, the call fails
 * on all ranks with the same message, which begins with `what` and names the first line that
 * differs. `what` says what is compared, on all ranks alike. A line may end with a note after the
 * byte 0x1F, such as where the value comes from: it is not compared, and told beside the value. */
FSDP2_CALL fsdp2_mesh_agree(fsdp2_mesh mesh, const char* what, const char* text);
/* Tells all ranks of the mesh that this one has failed. Current and later collective calls on the
 * mesh end with FSDP2_E_PEER_FAILED and this message, on this rank too. For failures outside this
 * library's calls. May be called while another thread is inside the mesh. */
FSDP2_CALL fsdp2_mesh_fail(fsdp2_mesh mesh, const char* message);

FSDP2_END_DECLS

#endif /* FSDP2_MESH_H_ */
