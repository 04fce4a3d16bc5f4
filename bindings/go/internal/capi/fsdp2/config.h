/* Configurations of training runs, so that trainers in every language read the YAML that fsdp2
 * train reads: files of ROLL, of MindSpeed-MM, the simple file of the GPT presets, and plain ones.
 * A configuration is a text. Lowered, it is a plan, which is a text, too: a program takes values
 * from it for objects of its own, or lets the library make the objects that fsdp2 train would make.
 *
 *   fsdp2_config_lower(yaml, "run.yaml", NULL, NULL, 0, 0, plan, sizeof(plan), &needed);
 *   fsdp2_config_set_up_process(plan);
 *   fsdp2_config_join_job(plan, &job);
 *   fsdp2_config_make_mesh(plan, job, &mesh);
 *   fsdp2_config_make_module(plan, &module);
 *   fsdp2_config_make_loader(plan, module, mesh, &loader);
 *   fsdp2_config_make_shard(plan, module, mesh, &shard);
 *   fsdp2_shard_load_values(shard);
 *   fsdp2_config_make_optimizer(plan, shard, &optimizer);
 *   fsdp2_config_make_step(plan, shard, optimizer, &step);
 */
#ifndef FSDP2_CONFIG_H_
#define FSDP2_CONFIG_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Returns the configuration as a plan: YAML with every key of fsdp2 train once, in its own words,
 * and after each the place that its value comes from. Comments at the end say which keys of the
 * configuration mean nothing here. docs/yaml.md has the keys.
 * config_name: what messages call the text; NULL: "config". role: the one to train, where there are
 * several. sets: assignments "path.to.key=value" to keys of the configuration, which go before it.
 * world_size: settles what depends on the number of ranks, such as global_batch; 0 leaves it open.
 * Errors: FSDP2_E_INVALID_ARGUMENT, which names place and key (an unknown key, a value that a key
 * does not take, a job of another size, what libfsdp2 cannot do). */
FSDP2_CALL fsdp2_config_lower(const char* config, const char* config_name /*(opt)*/,
                              const char* role /*(opt)*/, const char* const* sets /*(opt)*/,
                              size_t n_sets, int32_t world_size, char* buf, size_t cap,
                              size_t* needed);
/* Returns the value of a key of a plan: "0.001", "true", or a list as "A,B"; empty where nothing is
 * given. Keys are those of plain files ("global_batch" or "global-batch"). Errors:
 * FSDP2_E_NOT_FOUND (a key), FSDP2_E_INVALID_ARGUMENT (a text that is no plan). */
FSDP2_CALL fsdp2_config_get_value(const char* plan, const char* key, char* buf, size_t cap,
                                  size_t* needed);
/* Returns what all ranks must have alike, for fsdp2_mesh_agree: "key=value" lines, with the places
 * in the plan as notes. FSDP2_E_INVALID_ARGUMENT for a text that is no plan. */
FSDP2_CALL fsdp2_config_get_shared(const char* plan, char* buf, size_t cap, size_t* needed);

/* Objects of a plan. Each is what fsdp2 train makes of the same configuration, an ordinary handle
 * that the caller destroys, and may be replaced by one of the caller's own. Keys about outputs,
 * checkpoints, evaluation, samples, --pregather and the end of the run are the caller's to carry
 * out, by fsdp2_config_get_value. Errors of all: FSDP2_E_INVALID_ARGUMENT for a text that is no
 * plan, or for values that contradict each other or the job, in one line that names the key as
 * fsdp2 train's flag (--global-batch) and its line in the plan, and those of the functions of the
 * ABI that the object is made by. Collective ones find a plan that is wrong on some ranks before
 * they begin: FSDP2_E_PEER_FAILED on the others, and the mesh stays usable. */

/* Applies threads, product_engine, matmul_precision, deterministic and keep_memory, which hold for
 * the whole process (runtime.h). With deterministic it also sets the environment variable
 * CUBLAS_WORKSPACE_CONFIG, unless it is set. Call it before other threads use the library. */
FSDP2_CALL fsdp2_config_set_up_process(const char* plan);
/* [c] Joins the job that the environment describes (fsdp2_mesh_create), by backend and timeout_s.
 * All its ranks must have the same plan: otherwise FSDP2_E_INVALID_ARGUMENT on each of them, with
 * the first key that differs. The mesh has one dim, of all ranks. */
FSDP2_CALL fsdp2_config_join_job(const char* plan, fsdp2_mesh* out);
/* [c] Makes the mesh that strategy, fsdp_size, ulysses_size and device describe, over the ranks of
 * a job. job: a mesh of one dim, of fsdp2_config_join_job or of the caller. */
FSDP2_CALL fsdp2_config_make_mesh(const char* plan, fsdp2_mesh job, fsdp2_mesh* out);
/* Makes the model of model or model_config, with parameters frozen, activations recomputed and MLPs
 * tiled as the plan says. FSDP2_E_IO for a model_config that cannot be read. */
FSDP2_CALL fsdp2_config_make_module(const char* plan, fsdp2_module* out);
/* [c] Shards a module, by wrapping, precision, resharding, offload and the other keys of sharding.
 * param_dtype "auto" is settled by the ranks' devices. The parameters get their values from
 * fsdp2_shard_load_values, or from a checkpoint. A reshard_budget_gb keeps units gathered after
 * forward, as many as a step of the plan's own model and optimizer fits with
 * (fsdp2_plan_choose_reshard). FSDP2_E_OUT_OF_MEMORY where none does: the module has been sharded
 * by then, and another try needs another one. */
FSDP2_CALL fsdp2_config_make_shard(const char* plan, fsdp2_module module, fsdp2_mesh mesh,
                                   fsdp2_shard* out);
/* Makes the optimizer, with its groups by no_decay, lr_scale and their like. */
FSDP2_CALL fsdp2_config_make_optimizer(const char* plan, fsdp2_shard shard, fsdp2_optimizer* out);
/* [c] Opens tokens, text or records, or a mixture of them, with the tokenizer that the plan names.
 * module: the model, whose vocabulary and positions the data must fit. Records need
 * fsdp2_loader_get_positions, as always. */
FSDP2_CALL fsdp2_config_make_loader(const char* plan, fsdp2_module module, fsdp2_mesh mesh,
                                    fsdp2_loader* out);
/* [c] Makes the step: accumulation, learning rate schedule, clipping, loss scaling. A plan in
 * epochs is FSDP2_E_INVALID_ARGUMENT, as the schedule needs its steps. */
FSDP2_CALL fsdp2_config_make_step(const char* plan, fsdp2_shard shard, fsdp2_optimizer optimizer,
                                  fsdp2_step* out);
/* Returns the plan with steps in place of its epochs, and with the warmup that depends on them.
 * steps_per_epoch: at least 1, as fsdp2_loader_get_info has it. A plan without epochs stays. */
FSDP2_CALL fsdp2_config_settle_epochs(const char* plan, int64_t steps_per_epoch, char* buf,
                                      size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_CONFIG_H_ */
