/* A device mesh: ranks of a job as an n-D array, row-major, with (optionally) named dims.
 *
 * Who this rank is and where the others are comes from the options or, where they leave it open,
 * from the launcher's environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
 * (torchrun, fsdp2 run, Kubernetes), Slurm's or Open MPI's variables. With none: one rank.
 *
 * The group of a dim is the set of ranks that differ from this one in that coordinate only. Ranks
 * are numbers in the job, wherever it is not said that they count within a group. */
#ifndef FSDP2_MESH_H_
#define FSDP2_MESH_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_BACKEND_AUTO = 0,
  FSDP2_BACKEND_GLOO = 1,   /* CPU */
  FSDP2_BACKEND_NCCL = 2,   /* CUDA */
  FSDP2_BACKEND_THREAD = 3, /* ranks are threads of this process; rendezvous "thread://NAME" */
  FSDP2_BACKEND_FAKE = 4    /* this process is one rank of world_size and the others are not there:
                               collectives end at once, are counted, and take every other rank to
                               pass what this one passes. For planning. Needs world_size; rank is 0
                               unless given; the environment is not read. */
};

typedef struct fsdp2_mesh_options {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank;             /* -1: from the environment */
  int32_t world_size;       /* -1: from the environment */
  int32_t local_rank;       /* -1: from the environment */
  int32_t n_dims;           /* 0: by fsdp_size */
  const int64_t* shape;     /* (opt) n_dims sizes whose product is the world size; one may be -1,
                               what is left */
  const char* const* names; /* (opt) n_dims different dim names; NULL: dims have no names */
  const char* rendezvous;   /* (opt) env:// (default), tcp://host:port, file:///path, thread://name,
                               fake:// */
  int64_t timeout_ms;       /* of every collective */
  int64_t fsdp_size;       /* with n_dims 0: 0, 1 or >= world: 1-D, "fsdp"; else (world/size, size),
                              "ddp" and "fsdp"; -1: (world, 1), replicas only */
  const int64_t* ranks;    /* (opt) with a shape: the ranks of this mesh, row-major, this one among
                              them. Every rank of the job passes the table that it is in. */
  int64_t n_ranks;         /* of `ranks` */
  const char* device_type; /* (opt) "cpu" (default) or "cuda", without an index */
} fsdp2_mesh_options;
/* clang-format off */
#define FSDP2_MESH_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_mesh_options), FSDP2_BACKEND_AUTO, -1, -1, -1, 0, NULL, NULL, NULL, 600000, 0, \
    NULL, 0, NULL }
/* clang-format on */
FSDP2_CALL fsdp2_mesh_options_init(fsdp2_mesh_options* options, size_t struct_size);

/* [c] Joins the job. Errors: FSDP2_E_INVALID_ARGUMENT (settings that contradict), FSDP2_E_TIMEOUT
 * (a rank did not come), FSDP2_E_IO or FSDP2_E_COMM (address in use or not reachable). */
FSDP2_CALL fsdp2_mesh_create(const fsdp2_mesh_options* options /*(opt)*/, fsdp2_mesh* out);
/* [c] Another mesh of the job that `mesh` is in: n_dims, shape, names, ranks, device_type and
 * fsdp_size count, what says how to join must be left at its default. */
FSDP2_CALL fsdp2_mesh_create_in(fsdp2_mesh mesh, const fsdp2_mesh_options* options,
                                fsdp2_mesh* out);
/* The 1-D mesh of a group that is there: that of `dim` of `mesh`. */
FSDP2_CALL fsdp2_mesh_from_group(fsdp2_mesh mesh, int32_t dim, const char* name /*(opt)*/,
                                 fsdp2_mesh* out);
FSDP2_API fsdp2_status fsdp2_mesh_destroy(fsdp2_mesh mesh);

typedef struct fsdp2_mesh_info {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank, world_size, local_rank, n_dims;
  int64_t shape[FSDP2_MAX_DIMS], coordinate[FSDP2_MAX_DIMS];
} fsdp2_mesh_info;
FSDP2_CALL fsdp2_mesh_get_info(fsdp2_mesh mesh, fsdp2_mesh_info* out);
/* Empty if the dims have no names. */
FSDP2_CALL fsdp2_mesh_get_dim_name(fsdp2_mesh mesh, int32_t dim, char* buf, size_t cap,
                                   size_t* needed);
/* FSDP2_E_NOT_FOUND lists the names there are. */
FSDP2_CALL fsdp2_mesh_get_dim_index(fsdp2_mesh mesh, const char* name, int32_t* out);
/* All ranks of the mesh, row-major. Writes up to cap of them, their number to needed; more than cap
 * is FSDP2_E_BUFFER_TOO_SMALL, (NULL, 0) asks. */
FSDP2_CALL fsdp2_mesh_get_ranks(fsdp2_mesh mesh, int32_t* ranks, size_t cap, size_t* needed);
typedef struct fsdp2_group_info {
  uint32_t struct_size;
  int32_t size;
  int32_t rank; /* this one's within the group: its coordinate in the dim */
  int32_t reserved;
  uint64_t id; /* equal for one group, however it was reached, while a mesh of it lives */
} fsdp2_group_info;
FSDP2_CALL fsdp2_mesh_get_group(fsdp2_mesh mesh, int32_t dim, fsdp2_group_info* out);
/* As fsdp2_mesh_get_ranks, in group order. */
FSDP2_CALL fsdp2_mesh_get_group_ranks(fsdp2_mesh mesh, int32_t dim, int32_t* ranks, size_t cap,
                                      size_t* needed);
/* 1 if ranks, shape, names and device type are equal; then the hashes are, too. */
FSDP2_CALL fsdp2_mesh_is_equal(fsdp2_mesh a, fsdp2_mesh b, int32_t* out);
FSDP2_CALL fsdp2_mesh_get_hash(fsdp2_mesh mesh, uint64_t* out);
/* "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)" */
FSDP2_CALL fsdp2_mesh_describe(fsdp2_mesh mesh, char* buf, size_t cap, size_t* needed);
/* This rank's part of the mesh along some dims, named in the mesh's order. A name that
 * fsdp2_mesh_flatten gave stands for the dims it covers. It shares the groups of `mesh`. Errors:
 * FSDP2_E_NOT_FOUND (listing the names there are), FSDP2_E_INVALID_ARGUMENT (another order). */
FSDP2_CALL fsdp2_mesh_get_submesh(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                                  fsdp2_mesh* out);

/* [c] of all ranks of the job: some dims as one, row-major, with a group of its own. name: NULL:
 * the names joined by "_". */
FSDP2_CALL fsdp2_mesh_flatten(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                              const char* name /*(opt)*/, fsdp2_mesh* out);
/* What the mesh is a slice of, and which of its dims the slice has (as fsdp2_mesh_get_ranks does
 * it); FSDP2_E_NOT_FOUND for a mesh that is no slice. */
FSDP2_CALL fsdp2_mesh_get_root(fsdp2_mesh mesh, int32_t* dims, size_t cap, size_t* needed,
                               fsdp2_mesh* out);

/* [c] Returns on all ranks once all have come. */
FSDP2_CALL fsdp2_mesh_barrier(fsdp2_mesh mesh);
enum { FSDP2_REDUCE_SUM = 0, FSDP2_REDUCE_AVERAGE = 1, FSDP2_REDUCE_MAX = 2 };
/* [c] Reduces n doubles over all ranks, in place. */
FSDP2_CALL fsdp2_mesh_all_reduce(fsdp2_mesh mesh, double* values, size_t n, int32_t op);

/* Tensors along one dim: collective over the dim's group, blocking, without gradients. Dtypes and
 * shapes that do not fit are FSDP2_E_INVALID_ARGUMENT on all ranks of the group, before any data
 * moves. A dim that a mesh of several has not is told to the whole job, whose meshes are then
 * spent: nobody knows which group waits. Pieces are ceil(n / ranks) long, but the last ones may be
 * shorter or empty.
 *
 * [c] Overwrites `tensor` with that of the group's first rank. */
FSDP2_CALL fsdp2_mesh_broadcast(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor);
/* [c] This rank's piece, along tensor_dim, of the tensor that the group's first rank passes; the
 * others pass {0}. */
FSDP2_CALL fsdp2_mesh_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole, int32_t tensor_dim,
                              fsdp2_tensor* out);
/* [c] All ranks' tensors one behind the other along tensor_dim, in which their sizes may differ. */
FSDP2_CALL fsdp2_mesh_all_gather(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor piece,
                                 int32_t tensor_dim, fsdp2_tensor* out);
/* [c] This rank's piece, along tensor_dim, of the sum or average of all ranks' tensors. */
FSDP2_CALL fsdp2_mesh_reduce_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                     int32_t tensor_dim, int32_t op, fsdp2_tensor* out);
/* [c] In place. */
FSDP2_CALL fsdp2_mesh_all_reduce_tensor(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor,
                                        int32_t op);

/* [c] Fails on all ranks with the same message if the ranks pass different texts ("key=value"
 * lines): it names the first line that differs. `what` says what is compared. Not on sub-meshes:
 * FSDP2_E_UNSUPPORTED. */
FSDP2_CALL fsdp2_mesh_agree(fsdp2_mesh mesh, const char* what, const char* text);
/* Tells all ranks that this one has failed: running and later collective calls on the mesh end with
 * FSDP2_E_PEER_FAILED and this message, this rank's included. For failures outside this library's
 * own calls; while another thread is inside the mesh it may be called, too. */
FSDP2_CALL fsdp2_mesh_fail(fsdp2_mesh mesh, const char* message);

FSDP2_END_DECLS

#endif /* FSDP2_MESH_H_ */
