/* Go's functions as C sees them: each calls the function that its user_data holds. */
#ifndef FSDP2_GO_CALLBACK_H_
#define FSDP2_GO_CALLBACK_H_

#include "fsdp2/fsdp2.h"

/* Without const, which Go does not have. */
void fsdp2GoRelease(void* user_data);
void fsdp2GoLog(fsdp2_log_record* record, void* user_data);
fsdp2_status fsdp2GoForward(fsdp2_forward_info* info, fsdp2_tensor* inputs, size_t n_inputs,
                            fsdp2_tensor* outputs, size_t cap, size_t* n_outputs, void* user_data);
fsdp2_status fsdp2GoFunctionForward(fsdp2_function_info* info, fsdp2_tensor* inputs,
                                    size_t n_inputs, fsdp2_tensor* outputs, fsdp2_tensor* saved,
                                    size_t cap, size_t* n_outputs, size_t* n_saved,
                                    void* user_data);
fsdp2_status fsdp2GoFunctionBackward(fsdp2_function_info* info, fsdp2_tensor* saved, size_t n_saved,
                                     fsdp2_tensor* output_gradients, size_t n_outputs,
                                     fsdp2_tensor* gradients, void* user_data);
fsdp2_status fsdp2GoShardDim(fsdp2_shard_dim_info* info, int32_t* out, void* user_data);
fsdp2_status fsdp2GoAllReduceHook(fsdp2_all_reduce_info* info, fsdp2_tensor gradients,
                                  void* user_data);
fsdp2_status fsdp2GoGradientReady(fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                  void* user_data);
fsdp2_status fsdp2GoPreAllGather(fsdp2_gather_info* info, fsdp2_tensor chunk, fsdp2_tensor* out,
                                 void* user_data);
fsdp2_status fsdp2GoPostAllGather(fsdp2_gather_info* info, fsdp2_tensor pieces, fsdp2_tensor chunks,
                                  void* user_data);

#endif /* FSDP2_GO_CALLBACK_H_ */
