/* Configurations of training runs, so that trainers in every language read the YAML that fsdp2
 * train reads: files of ROLL, of MindSpeed-MM, the simple file of the GPT presets, and plain ones.
 * A configuration is a text; nothing here opens a file, and nothing makes an object.
 *
 *   fsdp2_config_lower(yaml, "run.yaml", NULL, NULL, 0, world_size, plan, sizeof(plan), &needed);
 *   fsdp2_config_get_value(plan, "lr", value, sizeof(value), &needed);
 *   fsdp2_config_get_shared(plan, shared, sizeof(shared), &needed);
 *   fsdp2_mesh_agree(mesh, "options", shared);
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

FSDP2_END_DECLS

#endif /* FSDP2_CONFIG_H_ */
