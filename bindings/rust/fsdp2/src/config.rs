//! Configurations of training runs, so that a trainer reads the files that `fsdp2 train` reads.

use std::fmt;
use std::ptr;

use crate::ffi::{self, Texts};
use crate::{sys, Loader, Mesh, Module, Optimizer, Result, Shard, Step};

/// What lowers a configuration, beside its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigOptions {
    /// What messages call the text, usually the name of its file; none: "config".
    pub name: Option<String>,
    /// The role to train, where the configuration has several.
    pub role: Option<String>,
    /// Assignments "path.to.key=value" to keys of the configuration, which go before it.
    pub sets: Vec<String>,
    /// Settles what depends on the number of ranks, such as `global_batch`; 0 leaves it open.
    pub world_size: i32,
}

/// A run's configuration as a plan: YAML with every key of `fsdp2 train` once, in its own words, and after each the place that its
/// value comes from. It is a text of the program's, with nothing of the library behind it. A program takes
/// values from it for objects of its own, or has the objects made that `fsdp2 train` would make.
///
/// ```no_run
/// use fsdp2::{Config, ConfigOptions};
///
/// # fn main() -> fsdp2::Result<()> {
/// # let mesh = fsdp2::Mesh::create(&Default::default())?;
/// let options = ConfigOptions { world_size: mesh.info()?.world_size, ..Default::default() };
/// let config = Config::lower(&std::fs::read_to_string("run.yaml").unwrap(), &options)?;
/// mesh.agree("options", &config.shared()?)?;
/// let lr: f64 = config.value("lr")?.parse().unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    plan: String,
}

impl Config {
    /// Lowers a file of ROLL, of MindSpeed-MM, the simple file of the GPT presets, a plain one, or a plan again; docs/yaml.md has the
    /// keys. Errors: [`Status::InvalidArgument`](crate::Status::InvalidArgument), which names place and key (an unknown key, a value
    /// that a key does not take, a job of another size, what libfsdp2 cannot do).
    pub fn lower(text: &str, options: &ConfigOptions) -> Result<Self> {
        ffi::ready()?;
        let text = ffi::c_text(text)?;
        let name = options.name.as_deref().map(ffi::c_text).transpose()?;
        let role = options.role.as_deref().map(ffi::c_text).transpose()?;
        let sets = Texts::new(&options.sets)?;
        let plan = ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_config_lower(
                text.as_ptr(),
                name.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
                role.as_ref().map_or(ptr::null(), |role| role.as_ptr()),
                sets.as_ptr(),
                sets.len(),
                options.world_size,
                buffer,
                cap,
                needed,
            )
        })?;
        Ok(Self { plan })
    }

    /// The value of a key: "0.001", "true", or a list as "A,B"; empty where nothing is given. Keys are those of plain files,
    /// "global_batch" or "global-batch". Errors: [`Status::NotFound`](crate::Status::NotFound) (a key).
    pub fn value(&self, key: &str) -> Result<String> {
        let plan = ffi::c_text(&self.plan)?;
        let key = ffi::c_text(key)?;
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_config_get_value(plan.as_ptr(), key.as_ptr(), buffer, cap, needed)
        })
    }

    /// What all ranks must have alike, for [`Mesh::agree`](crate::Mesh::agree): "key=value" lines, with the places in the plan as
    /// notes.
    pub fn shared(&self) -> Result<String> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_config_get_shared(plan.as_ptr(), buffer, cap, needed)
        })
    }

    /// The plan with steps in place of its epochs, and with the warmup that depends on them. `steps_per_epoch`: at least 1, as
    /// [`Loader::info`] has it. A plan without epochs stays.
    pub fn settle_epochs(&self, steps_per_epoch: i64) -> Result<Self> {
        let plan = ffi::c_text(&self.plan)?;
        let plan = ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_config_settle_epochs(plan.as_ptr(), steps_per_epoch, buffer, cap, needed)
        })?;
        Ok(Self { plan })
    }

    // ---- the objects that fsdp2 train makes of the plan; each may be replaced by one of the program's own

    /// Applies threads, product engine, precision of products, determinism and kept memory, which hold for the whole process. With
    /// `deterministic` it also sets an environment variable. Call it before other threads use the library.
    pub fn set_up_process(&self) -> Result<()> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::check(unsafe { sys::fsdp2_config_set_up_process(plan.as_ptr()) })
    }

    /// Joins the job that the environment describes. Its ranks must have the same plan: otherwise each of them is told the first key
    /// that differs. *Collective.*
    pub fn join_job(&self) -> Result<Mesh> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe { sys::fsdp2_config_join_job(plan.as_ptr(), out) }).map(Mesh::own)
    }

    /// The mesh that strategy, sizes and device describe, over the ranks of a job. *Collective.*
    pub fn make_mesh(&self, job: &Mesh) -> Result<Mesh> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe { sys::fsdp2_config_make_mesh(plan.as_ptr(), job.raw(), out) })
            .map(Mesh::own)
    }

    /// The model, with parameters frozen, activations recomputed and MLPs tiled as the plan says.
    pub fn make_module(&self) -> Result<Module> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe { sys::fsdp2_config_make_module(plan.as_ptr(), out) })
            .map(Module::own)
    }

    /// The data, with the tokenizer that the plan names; they must fit the model's vocabulary and positions. *Collective.*
    pub fn make_loader(&self, module: &Module, mesh: &Mesh) -> Result<Loader> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_config_make_loader(plan.as_ptr(), module.raw(), mesh.raw(), out)
        })
        .map(Loader::own)
    }

    /// The module, sharded; its values come from [`Shard::load_values`] or a checkpoint. *Collective.*
    pub fn make_shard(&self, module: &Module, mesh: &Mesh) -> Result<Shard> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_config_make_shard(plan.as_ptr(), module.raw(), mesh.raw(), out)
        })
        .map(Shard::own)
    }

    /// The optimizer, with its groups.
    pub fn make_optimizer(&self, shard: &Shard) -> Result<Optimizer> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_config_make_optimizer(plan.as_ptr(), shard.raw(), out)
        })
        .map(Optimizer::own)
    }

    /// The step: accumulation, schedule, clipping, loss scaling. A plan in epochs is refused: see [`Config::settle_epochs`].
    /// *Collective.*
    pub fn make_step(&self, shard: &Shard, optimizer: &Optimizer) -> Result<Step> {
        let plan = ffi::c_text(&self.plan)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_config_make_step(plan.as_ptr(), shard.raw(), optimizer.raw(), out)
        })
        .map(Step::own)
    }
}

/// The plan.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plan)
    }
}
