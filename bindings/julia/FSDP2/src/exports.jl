# What `using FSDP2` brings. Not exported, because Julia or its users have names like these: FSDP2.Module, FSDP2.Config, FSDP2.Handle, FSDP2.Element,
# FSDP2.TensorArray, FSDP2.default, FSDP2.version, FSDP2.live_handles, FSDP2.profile.

export FSDP2Error, BF16, duplicate
export describe_runtime, set_threads, set_product_engine, set_deterministic, set_matmul_precision, keep_memory, set_log, LogRecord

export Mesh, from_group, get_info, get_dim_name, get_dim_index, get_ranks, get_group, get_group_ranks, get_device_memory, choose_dtype,
    describe, get_submesh, flatten, get_root, fail
export barrier, all_reduce, all_reduce!, broadcast_tensor!, scatter, all_gather, reduce_scatter, agree

export Tensor, share, get_value, set_requires_grad!, get_grad, backward
export Scope, scope, add!, keep!, no_grad
export Generator, set_state!
export op, get_schema, matmul, view_as
export linear, embedding, layer_norm, rms_norm, gelu, silu, relu, sigmoid, softmax, log_softmax, cross_entropy, mse_loss,
    scaled_dot_product_attention, dropout

export from_pretrained, from_config, from_exported, get_parameters, get_parameter, zero_grad!, checkpoint_activations!, tile_mlps!, train!,
    is_training, forward, check_inputs, forward_submodule
export score, evaluate, generate
export create_layer, custom_module, parameter, add_parameter!, add_buffer!, get_buffer, tie_parameter!, add_child!
export call_function, save!

export Shard, apply_strategy, make_unit!, make_units!, load_values!, get_mesh, get_grad_norm, clip_grad_norm!, get_grad_overflow,
    scale_grad!, cast_parameters!
export get_units, get_unit, set_requires_gradient_sync!, set_requires_all_reduce!, set_is_last_backward!, get_is_last_backward,
    finalize_backward!, set_reshard_after_forward!, set_reshard_after_backward!, set_unshard_in_backward!, set_reduce_unused_parameters!,
    set_gradient_divide_factor!, set_force_sum_reduction!, set_allocate_memory_from_process_group!, set_forward_prefetch!,
    set_backward_prefetch!, get_forward_prefetch,
    get_backward_prefetch, get_unit_settings, set_unit_settings!, unshard!, wait_unshard, reshard!, reset!, release_buffers!, get_events,
    clear_events!, get_stats, reset_stats!
export set_all_reduce_hook!, set_gradient_ready!, set_all_gather_extension!
export get_plan, get_plan_memory, choose_reshard!, describe_plan
export describe_profile
export lower_config, get_shared, settle_epochs, set_up_process, join_job, make_mesh, make_module, make_loader, make_shard,
    make_optimizer, make_step

export Optimizer, adamw, sgd, muon, add_adamw_group!, add_sgd_group!, exempt_from_decay!, exempt_named_from_decay!, scale_lr!, get_groups,
    get_state, set_lr!, get_lr, set_weight_decay!, run!
export Tokenizer, encode, encode_record, encode_prompt, decode
export Loader, open_mixture, next!, get_positions, get_boundaries, get_images, get_videos, get_position, set_position!
export Step
export State, add_tensor!, add_value!, get_names, get_tensor, save, load!, gather
export save_checkpoint, prepare_checkpoint, check_checkpoint_path, wait_checkpoint, poll_checkpoint, load_checkpoint!,
    get_checkpoint_report, get_checkpoint_state, set_checkpoint_state!, save_full, load_full!, save_pretrained, find_checkpoint,
    inspect_checkpoint, verify_checkpoint, rebuild_checkpoint_manifest, convert_checkpoint
