/* A device mesh: all ranks of a job as an n-D array with named dims.
 *
 * Who this rank is and where the others are comes from the options or, where they leave it open,
 * from the launcher's environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
 * (torchrun, fsdp2 run, Kubernetes), Slurm's or Open MPI's variables. With none: one rank. */
#ifndef FSDP2_MESH_H_
#define FSDP2_MESH_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_BACKEND_AUTO = 0,
  FSDP2_BACKEND_GLOO = 1,   /* CPU */
  FSDP2_BACKEND_NCCL = 2,   /* CUDA */
  FSDP2_BACKEND_THREAD = 3, /* ranks are threads of this process; rendezvous "thread://NAME" */
  FSDP2_BACKEND_FAKE = 4    /* plans any world size in one process, moves nothing */
};

typedef struct fsdp2_mesh_options {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank;             /* -1: from the environment */
  int32_t world_size;       /* -1: from the environment */
  int32_t local_rank;       /* -1: from the environment */
  int32_t n_dims;           /* 0: by fsdp_size */
  const int64_t* shape;     /* (opt) n_dims sizes whose product is the world size */
  const char* const* names; /* (opt) n_dims dim names; default "fsdp", or "ddp", "fsdp" */
  const char* rendezvous; /* (opt) env:// (default), tcp://host:port, file:///path, thread://name */
  int64_t timeout_ms;     /* of every collective */
  int64_t fsdp_size;      /* with n_dims 0: <= 1 or >= world: 1-D; else (world/size, size) */
} fsdp2_mesh_options;
/* clang-format off */
#define FSDP2_MESH_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_mesh_options), FSDP2_BACKEND_AUTO, -1, -1, -1, 0, NULL, NULL, NULL, 600000, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_mesh_options_init(fsdp2_mesh_options* options, size_t struct_size);

/* [c] Joins the job. Errors: FSDP2_E_INVALID_ARGUMENT (settings that contradict), FSDP2_E_TIMEOUT
 * (a rank did not come), FSDP2_E_IO or FSDP2_E_COMM (address in use or not reachable). */
FSDP2_CALL fsdp2_mesh_create(const fsdp2_mesh_options* options /*(opt)*/, fsdp2_mesh* out);
FSDP2_API fsdp2_status fsdp2_mesh_destroy(fsdp2_mesh mesh);

typedef struct fsdp2_mesh_info {
  uint32_t struct_size;
  int32_t backend;
  int32_t rank, world_size, local_rank, n_dims;
  int64_t shape[FSDP2_MAX_DIMS], coordinate[FSDP2_MAX_DIMS];
} fsdp2_mesh_info;
FSDP2_CALL fsdp2_mesh_get_info(fsdp2_mesh mesh, fsdp2_mesh_info* out);
FSDP2_CALL fsdp2_mesh_get_dim_name(fsdp2_mesh mesh, int32_t dim, char* buf, size_t cap,
                                   size_t* needed);
/* "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)" */
FSDP2_CALL fsdp2_mesh_describe(fsdp2_mesh mesh, char* buf, size_t cap, size_t* needed);
/* The mesh of some dims, in the order asked for. It shares the groups of `mesh`. */
FSDP2_CALL fsdp2_mesh_get_submesh(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                                  fsdp2_mesh* out);

/* [c] Returns on all ranks once all have come. */
FSDP2_CALL fsdp2_mesh_barrier(fsdp2_mesh mesh);
enum { FSDP2_REDUCE_SUM = 0, FSDP2_REDUCE_AVERAGE = 1, FSDP2_REDUCE_MAX = 2 };
/* [c] Reduces n doubles over all ranks, in place. */
FSDP2_CALL fsdp2_mesh_all_reduce(fsdp2_mesh mesh, double* values, size_t n, int32_t op);
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
