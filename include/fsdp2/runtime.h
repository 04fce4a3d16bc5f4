/* The library itself: its version, its live handles, and the process-wide settings that it changes
 * when asked to. */
#ifndef FSDP2_RUNTIME_H_
#define FSDP2_RUNTIME_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Returns the library's version, in the form of FSDP2_HEADER_VERSION. */
FSDP2_API uint32_t fsdp2_version(void);
/* Compares the header's version with the library's. Call this first, with FSDP2_HEADER_VERSION.
 * FSDP2_E_ABI_MISMATCH if the versions are not the same (from 1.0 on: if the majors differ, or the
 * library's minor is below the header's), or if the LibTorch found is not the one that the library
 * was built against. */
FSDP2_CALL fsdp2_check_version(uint32_t header_version);
/* Returns the number of handles given out in this process and not destroyed yet. */
FSDP2_API int64_t fsdp2_live_handles(void);
/* Describes what runs here in "key: value" lines: version, LibTorch, CPU, threads, product
 * engine, matmul precision, kept memory. */
FSDP2_CALL fsdp2_runtime_describe(char* buf, size_t cap, size_t* needed);
/* Sets the number of CPU threads per LibTorch operation, for this thread and for later threads of
 * the process: 1 to the number of processors, or to 64 if there are fewer. FSDP2_E_OUT_OF_MEMORY,
 * with nothing changed, if the system does not give so many threads. */
FSDP2_CALL fsdp2_runtime_set_threads(size_t n);

enum {
  FSDP2_PRODUCT_ENGINE_AUTO = 0, /* the faster one, measured once where it is not known */
  FSDP2_PRODUCT_ENGINE_MKL = 1,
  FSDP2_PRODUCT_ENGINE_ONEDNN = 2
};
/* Chooses the CPU engine of LibTorch that computes the fp32 products of this library's linear
 * layers. With AUTO, their bf16 products and attention in bf16 go through fp32 where that is
 * measured to be faster; with an engine named, or fsdp2_runtime_set_deterministic, they are
 * LibTorch's own, which no measurement decides. On a CPU that LibTorch has no bf16 products for
 * (AVX2 alone), they go through fp32 in any case. */
FSDP2_CALL fsdp2_runtime_set_product_engine(int32_t engine);
/* Sets whether results are reproducible. flag 1: the operators of LibTorch in this process give the
 * same bits in every run on the same machines, with as many ranks and threads; 0, with which a
 * process begins: they may differ where that is faster. On a CPU they are the same anyway once a
 * product engine is named. On a GPU a call that runs an operator without such an algorithm fails
 * and names it, and products need CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment before the GPU
 * is first used. */
FSDP2_CALL fsdp2_runtime_set_deterministic(int32_t flag);

/* Sets whether the memory of freed tensors is kept. flag 1: memory of CPU tensors of 1 MiB and more
 * that are freed stays with the process, for those that are made next, so that a training step
 * takes the memory of the one before and the system need not find and clear it anew. What is kept
 * and what is in use are together never more than was in use at once. 0, with which a process
 * begins: what is kept goes back to the system; to give it back and keep what is freed later, call
 * with 0 and then with 1. Tensors may outlive either call, and any thread may free them. Call it
 * while no other thread makes tensors. fsdp2_runtime_describe tells how much is kept.
 * FSDP2_E_UNSUPPORTED if another library in the process has replaced LibTorch's allocator and
 * cannot be followed by this one. */
FSDP2_CALL fsdp2_runtime_keep_memory(int32_t flag);

/* What the fp32 products of this library's linear layers may round on CPUs, forward and backward,
 * by the words of torch.set_float32_matmul_precision. Sums are fp32 in each. Products of operands
 * that are not all finite, or of numbers near the ends of fp32's range, of fewer than 128 rows or
 * columns, or of other layers, are strict fp32 in any case. */
enum {
  FSDP2_MATMUL_HIGHEST = 0, /* nothing: strict fp32 */
  FSDP2_MATMUL_HIGH = 1,   /* each operand is the sum of two bf16 numbers, which hold 16 bits, where
                              this CPU is measured to be faster at that, as those with AMX are;
                              elsewhere strict fp32. Errors are about 5e-6 of a product's largest
                              element, ten times those of strict fp32 */
  FSDP2_MATMUL_MEDIUM = 2, /* operands are rounded to bf16, where that is measured to be faster;
                              elsewhere strict fp32. Errors are about 3e-3 */
  FSDP2_MATMUL_HIGH_ALWAYS = 3, /* as HIGH, however slow: the numbers of a machine that is faster */
  FSDP2_MATMUL_MEDIUM_ALWAYS = 4 /* as MEDIUM, likewise */
};
/* Sets the precision of fp32 products for the whole process; HIGHEST until then. All ranks must
 * have the same when they shard a module. The first large product after HIGH or MEDIUM measures,
 * some tens of milliseconds, and logs what came of it, a warning if products stay strict fp32;
 * fsdp2_runtime_describe tells it, too. Ranks that shard a module use parts only if they are faster
 * on all of them. */
FSDP2_CALL fsdp2_runtime_set_matmul_precision(int32_t precision);

FSDP2_END_DECLS

#endif /* FSDP2_RUNTIME_H_ */
