//! The units of a shard, the root first: what each one is, what it has done, and its settings ([`Shard`]'s methods that begin
//! with `set_`). A unit is named by the dotted path of its module; "" is the root.

use crate::ffi::{self, Field, Texts};
use crate::{sys, Dtype, Reshard, Result, Shard};

numbers! {
    /// Where a unit's parameters are.
    UnitState {
        /// Each rank has its part.
        Sharded = FSDP2_UNIT_SHARDED,
        /// An all-gather is under way.
        Gathering = FSDP2_UNIT_GATHERING,
        /// Each rank has them whole.
        Unsharded = FSDP2_UNIT_UNSHARDED,
        /// Cut into slices over a smaller group.
        Sliced = FSDP2_UNIT_SLICED,
    }
}

numbers! {
    /// What a unit did.
    EventKind {
        /// An all-gather was issued.
        AllGather = FSDP2_EVENT_ALL_GATHER,
        /// The parameters are gathered.
        Unshard = FSDP2_EVENT_UNSHARD,
        /// They were freed, or cut into slices.
        Reshard = FSDP2_EVENT_RESHARD,
        /// A reduction of gradients was issued.
        ReduceScatter = FSDP2_EVENT_REDUCE_SCATTER,
        /// The unit is done with this backward.
        PostBackward = FSDP2_EVENT_POST_BACKWARD,
    }
}

/// What a unit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it was.
    pub kind: EventKind,
    /// The unit's index.
    pub unit: usize,
}

info! {
    /// What a unit is.
    UnitInfo: fsdp2_unit_info {
        /// Where its parameters are.
        state: UnitState,
        /// The modules that it is made of.
        n_modules: i32,
        /// 0: the units below have them all.
        n_parameters: i32,
        /// The dtype of the first parameter; none if there is none.
        dtype: Option<Dtype>,
        /// For computing; none if there is no parameter.
        compute_dtype: Option<Dtype>,
        /// -1: parameters differ in it, or there are none.
        shard_dim: i32,
        /// Is it the root?
        is_root: bool,
        /// Global elements.
        numel: i64,
        /// Bytes of this rank's part, with padding.
        sharded_bytes: i64,
        /// Bytes of all the parameters when they are gathered.
        unsharded_bytes: i64,
        /// Bytes of gathered parameters that are alive now.
        live_bytes: i64,
    }
}

info! {
    /// What the units of a shard have moved since its creation, or since the last reset.
    ShardStats: fsdp2_shard_stats {
        /// Units with parameters.
        n_units: i32,
        /// How often a unit has been gathered.
        all_gathers: i64,
        /// How often a unit's gradients have been reduced and scattered.
        reduce_scatters: i64,
        /// How often a unit's gradients have been reduced over the replicas.
        all_reduces: i64,
        /// Received by this rank.
        all_gather_bytes: i64,
        /// Received by this rank.
        reduce_scatter_bytes: i64,
        /// Received by this rank.
        all_reduce_bytes: i64,
        /// Bytes of gathered parameters, now.
        unsharded_bytes: i64,
        /// Bytes of gathered parameters, at most.
        peak_unsharded_bytes: i64,
        /// Calls of attention, where ranks share sequences.
        all_to_alls: i64,
        /// Received by this rank in these.
        all_to_all_bytes: i64,
        /// Bytes that `keep_buffers` keeps now, and that are not in use.
        kept_bytes: i64,
    }
}

info! {
    /// What the settings of one unit are, apart from its prefetch lists.
    UnitSettings: fsdp2_unit_settings {
        /// See [`Shard::set_requires_gradient_sync`].
        requires_gradient_sync: bool,
        /// See [`Shard::set_requires_all_reduce`].
        requires_all_reduce: bool,
        /// See [`Shard::set_reshard_after_forward`]; [`Reshard::Auto`]: the option of that name holds.
        reshard_after_forward: Reshard,
        /// See [`Shard::set_reshard_after_backward`].
        reshard_after_backward: bool,
        /// See [`Shard::set_unshard_in_backward`].
        unshard_in_backward: bool,
        /// See [`Shard::set_reduce_unused_parameters`].
        reduce_unused_parameters: bool,
        /// See [`Shard::set_force_sum_reduction`].
        force_sum_reduction: bool,
        /// See [`Shard::set_gradient_divide_factor`]; 0: the number of data-parallel ranks.
        gradient_divide_factor: f64,
        /// See [`Shard::set_allocate_memory_from_process_group`].
        allocate_memory_from_process_group: bool,
    }
}

impl UnitSettings {
    fn raw(&self) -> sys::fsdp2_unit_settings {
        sys::fsdp2_unit_settings {
            struct_size: std::mem::size_of::<sys::fsdp2_unit_settings>() as u32,
            requires_gradient_sync: self.requires_gradient_sync.to_c(),
            requires_all_reduce: self.requires_all_reduce.to_c(),
            reshard_after_forward: self.reshard_after_forward.to_c(),
            reshard_after_backward: self.reshard_after_backward.to_c(),
            unshard_in_backward: self.unshard_in_backward.to_c(),
            reduce_unused_parameters: self.reduce_unused_parameters.to_c(),
            force_sum_reduction: self.force_sum_reduction.to_c(),
            gradient_divide_factor: self.gradient_divide_factor,
            allocate_memory_from_process_group: self.allocate_memory_from_process_group.to_c(),
            reserved: 0,
        }
    }
}

/// A setting of one unit that takes a flag, and of those below as well where it takes `recurse`.
macro_rules! flag_settings {
    ($($(#[$doc:meta])* $name:ident: $function:ident $(, $recurse:ident)?;)*) => { $(
        $(#[$doc])*
        pub fn $name(&self, unit: &str, flag: bool $(, $recurse: bool)?) -> Result<()> {
            let unit = ffi::c_text(unit)?;
            ffi::check(unsafe {
                sys::$function(self.raw(), unit.as_ptr(), i32::from(flag) $(, i32::from($recurse))?)
            })
        }
    )* };
}

/// Units. With `recurse`, a setting is for every unit below as well. All ranks must make the same settings.
impl Shard {
    /// The number of units.
    pub fn unit_count(&self) -> Result<usize> {
        ffi::made(|out| unsafe { sys::fsdp2_shard_get_unit_count(self.raw(), out) })
    }

    /// What a unit is.
    pub fn unit_info(&self, index: usize) -> Result<UnitInfo> {
        UnitInfo::get(|out| unsafe { sys::fsdp2_shard_get_unit_info(self.raw(), index, out) })
    }

    /// A unit's name; the root's is empty.
    pub fn unit_name(&self, index: usize) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_shard_get_unit_name(self.raw(), index, buffer, cap, needed)
        })
    }

    /// A unit's index.
    pub fn unit_index(&self, unit: &str) -> Result<usize> {
        let unit = ffi::c_text(unit)?;
        ffi::made(|out| unsafe { sys::fsdp2_shard_get_unit_index(self.raw(), unit.as_ptr(), out) })
    }

    flag_settings! {
        /// Off: backward leaves gradients unreduced on every rank, and later ones add to them. Sets `requires_all_reduce` too.
        set_requires_gradient_sync: fsdp2_shard_set_requires_gradient_sync, recurse;
        /// Off, with replicas: gradients are reduced over the shard group's ranks only, and kept for a later backward.
        set_requires_all_reduce: fsdp2_shard_set_requires_all_reduce, recurse;
        /// As [`Reshard::Always`] or [`Reshard::Never`], in place of the option of that name, also at the root.
        set_reshard_after_forward: fsdp2_shard_set_reshard_after_forward, recurse;
        /// Off: backward leaves the parameters gathered.
        set_reshard_after_backward: fsdp2_shard_set_reshard_after_backward, recurse;
        /// Off: backward does not gather the unit, because it can do without its parameters.
        set_unshard_in_backward: fsdp2_shard_set_unshard_in_backward;
        /// On: a parameter without a gradient on any rank gets zeros instead of none.
        set_reduce_unused_parameters: fsdp2_shard_set_reduce_unused_parameters, recurse;
        /// On: collectives only sum; scaling is a pass of its own.
        set_force_sum_reduction: fsdp2_shard_set_force_sum_reduction;
        /// On: what gathers and reductions send and receive is in memory that their groups of ranks give (NCCL's).
        set_allocate_memory_from_process_group: fsdp2_shard_set_allocate_memory_from_process_group;
    }

    /// Off: more backwards follow, so the end of one neither waits for the last reduction nor forgets the order of forwards. For
    /// the whole tree.
    pub fn set_is_last_backward(&self, flag: bool) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_set_is_last_backward(self.raw(), i32::from(flag)) })
    }

    /// Ends the backwards of a step by hand: reduces what they have put off for want of gradient sync or all-reduce, and waits for
    /// it. Collective.
    pub fn finalize_backward(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_finalize_backward(self.raw()) })
    }

    /// See [`Shard::set_is_last_backward`].
    pub fn is_last_backward(&self) -> Result<bool> {
        ffi::made_flag(|out| unsafe { sys::fsdp2_shard_get_is_last_backward(self.raw(), out) })
    }

    /// Divides gradients by this factor instead of the number of data-parallel ranks.
    pub fn set_gradient_divide_factor(&self, unit: &str, factor: f64) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_set_gradient_divide_factor(self.raw(), unit.as_ptr(), factor)
        })
    }

    /// The units whose all-gathers are issued when this unit's forward begins. None: back to the schedule's own rule.
    pub fn set_forward_prefetch(&self, unit: &str, units: &[&str]) -> Result<()> {
        let (unit, units) = (ffi::c_text(unit)?, Texts::new(units)?);
        ffi::check(unsafe {
            sys::fsdp2_shard_set_forward_prefetch(
                self.raw(),
                unit.as_ptr(),
                units.as_ptr(),
                units.len(),
            )
        })
    }

    /// The units whose all-gathers are issued when this unit's backward begins. None: back to the schedule's own rule.
    pub fn set_backward_prefetch(&self, unit: &str, units: &[&str]) -> Result<()> {
        let (unit, units) = (ffi::c_text(unit)?, Texts::new(units)?);
        ffi::check(unsafe {
            sys::fsdp2_shard_set_backward_prefetch(
                self.raw(),
                unit.as_ptr(),
                units.as_ptr(),
                units.len(),
            )
        })
    }

    /// The list that [`Shard::set_forward_prefetch`] has set, as indices of units.
    pub fn forward_prefetch(&self, unit: &str) -> Result<Vec<usize>> {
        let unit = ffi::c_text(unit)?;
        ffi::list(|units, cap, needed| unsafe {
            sys::fsdp2_shard_get_forward_prefetch(self.raw(), unit.as_ptr(), units, cap, needed)
        })
    }

    /// The list that [`Shard::set_backward_prefetch`] has set, as indices of units.
    pub fn backward_prefetch(&self, unit: &str) -> Result<Vec<usize>> {
        let unit = ffi::c_text(unit)?;
        ffi::list(|units, cap, needed| unsafe {
            sys::fsdp2_shard_get_backward_prefetch(self.raw(), unit.as_ptr(), units, cap, needed)
        })
    }

    /// The settings of a unit.
    pub fn unit_settings(&self, unit: &str) -> Result<UnitSettings> {
        let unit = ffi::c_text(unit)?;
        UnitSettings::get(|out| unsafe {
            sys::fsdp2_shard_get_unit_settings(self.raw(), unit.as_ptr(), out)
        })
    }

    /// Sets all of them at once.
    pub fn set_unit_settings(&self, unit: &str, settings: &UnitSettings) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_set_unit_settings(self.raw(), unit.as_ptr(), &settings.raw())
        })
    }

    /// Gathers the unit's own parameters. With `async_op` the gather is only started. *Collective.*
    pub fn unshard(&self, unit: &str, async_op: bool) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_unshard(self.raw(), unit.as_ptr(), i32::from(async_op))
        })
    }

    /// Waits until the unit's parameters are gathered. *Collective.*
    pub fn wait_unshard(&self, unit: &str) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe { sys::fsdp2_shard_wait_unshard(self.raw(), unit.as_ptr()) })
    }

    /// Frees the unit's gathered parameters.
    pub fn reshard(&self, unit: &str) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe { sys::fsdp2_shard_reshard(self.raw(), unit.as_ptr()) })
    }

    /// For an iteration that was given up: leaves the whole tree sharded and idle, and drops unreduced gradients.
    pub fn reset(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_reset(self.raw()) })
    }

    /// Gives the memory that [`keep_buffers`](crate::ShardOptions) has kept, and that is not in use, back to the allocator.
    pub fn release_buffers(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_release_buffers(self.raw()) })
    }

    // ---- what the units have done

    /// What the units did, oldest first: the last 16,384 events since creation or the last clear.
    pub fn events(&self) -> Result<Vec<Event>> {
        let mut units = Vec::new();
        let kinds = ffi::list(|kinds: *mut i32, cap, needed| {
            units.resize(cap, 0usize);
            let units = if cap == 0 {
                std::ptr::null_mut()
            } else {
                units.as_mut_ptr()
            };
            unsafe { sys::fsdp2_shard_get_events(self.raw(), kinds, units, cap, needed) }
        })?;
        let events = kinds.into_iter().zip(units);
        Ok(events
            .map(|(kind, unit)| Event {
                kind: EventKind::from_number(kind),
                unit,
            })
            .collect())
    }

    /// Forgets the events.
    pub fn clear_events(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_clear_events(self.raw()) })
    }

    /// What the units have moved.
    pub fn stats(&self) -> Result<ShardStats> {
        ShardStats::get(|out| unsafe { sys::fsdp2_shard_get_stats(self.raw(), out) })
    }

    /// Counts from 0 again.
    pub fn reset_stats(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_reset_stats(self.raw()) })
    }

    /// The units as a table: name, parameters, bytes, dtypes, shard dim, path of communication.
    pub fn describe(&self) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_shard_describe(self.raw(), buffer, cap, needed)
        })
    }
}
