//! Fully sharded data parallel training (FSDP2, HSDP) on LibTorch: a safe layer over libfsdp2.
//!
//! ```no_run
//! use fsdp2::{AdamwOptions, Loader, LoaderOptions, Mesh, Module, Optimizer, Shard, Step};
//!
//! fn main() -> fsdp2::Result<()> {
//!     let mesh = Mesh::create(&Default::default())?; // this process is one rank of the job
//!     let module = Module::from_pretrained("tiny-llama", &Default::default())?;
//!     let shard = Shard::create(&module, &mesh, &Default::default())?;
//!     let adamw = AdamwOptions { lr: 3e-3, ..Default::default() };
//!     let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
//!     let vocab_size = module.info()?.vocab_size;
//!     let data = LoaderOptions { sequence_length: 32, global_batch: 8, vocab_size, ..Default::default() };
//!     let loader = Loader::open(&mesh, "tokens.bin", &data)?;
//!     let step = Step::create(&shard, &optimizer, &Default::default())?;
//!     for _ in 0..5 {
//!         let result = step.run(&loader.next()?)?;
//!         println!("step {} loss {}", result.step, result.loss);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The nouns are those of the C ABI (`include/fsdp2`), whose headers say more about each call: `fsdp2_shard_create` is
//! [`Shard::create`], `fsdp2_mesh_get_info` is [`Mesh::info`]. Options have the library's own defaults.
//!
//! * A call that fails returns an [`Error`] with status, class, rank, function and message.
//! * An object is destroyed when it is dropped, in any order: it lives on until nothing needs it any more.
//! * *Collective* marks a call that all ranks of the mesh make, in the same order. If one rank fails, the others get
//!   [`Status::PeerFailed`].
//! * [`Mesh`], [`Tensor`], [`Tokenizer`] and [`Scope`] may be shared between threads. The other objects may move to another thread, but
//!   belong to one at a time; two threads that use the same model through two handles get [`Status::Busy`]. A [`Profile`] stays with its
//!   thread.
//! * A model comes from disk or a config.json, is put together from layers ([`layer!`]), or is written in operators ([`custom`]).
//! * Closures can be forwards ([`custom`]), hooks ([`hook`]) and sinks of messages ([`log`]), and a [`Function`] has a gradient of its
//!   own. An error or a panic in one is the source of the error of the call around it.

#![deny(missing_docs)]

use fsdp2_sys as sys;

#[macro_use]
mod macros;
#[macro_use]
pub mod op;

mod arithmetic;
mod callback;
pub mod checkpoint;
mod collective;
mod config;
pub mod custom;
mod dlpack;
mod element;
mod error;
mod ffi;
pub mod function;
mod generator;
pub mod hook;
mod infer;
mod layer;
mod loader;
pub mod log;
mod mesh;
mod module;
mod optimizer;
mod plan;
mod profile;
pub mod runtime;
mod scope;
mod shard;
mod shard_options;
mod state;
mod step;
mod tensor;
mod tensor_ops;
mod tokenizer;
mod unit;

pub use callback::{CallbackError, CallbackResult};
pub use checkpoint::{Checkpoint, CheckpointFormat, LoadOptions, SaveOptions};
pub use collective::ReduceOp;
pub use config::{Config, ConfigOptions};
pub use custom::{Forward, Init, ParameterOptions};
pub use dlpack::{DlPack, View};
pub use element::{Dtype, Element};
pub use error::{Class, Error, Panic, Result, Status};
pub use function::{Function, FunctionBackward, FunctionForward};
pub use generator::Generator;
pub use hook::{AllReduceInfo, GatherInfo, GradientInfo};
pub use infer::{Evaluation, GenerateOptions, InferOptions, Scores};
pub use loader::{Loader, LoaderInfo, LoaderOptions, Order, TokenFormat};
pub use log::{LogLevel, LogRecord};
pub use mesh::{Backend, DeviceMemory, GroupInfo, Mesh, MeshInfo, MeshOptions};
pub use module::{
    ActivationOptions, Chosen, Module, ModuleInfo, ModuleOptions, ModuleParameterInfo, Which,
};
pub use op::no_grad;
pub use optimizer::{
    AdamwOptions, Algorithm, MuonOptions, Optimizer, OptimizerGroupInfo, OptimizerInfo, SgdOptions,
};
pub use plan::{PlanInfo, PlanMemory, PlanOptions, PlanReshard};
pub use profile::Profile;
pub use scope::{Scope, Scoped};
pub use shard::{ParameterInfo, Shard};
pub use shard_options::{
    CommPath, CommSchedule, Reshard, ShardDimFn, ShardDimInfo, ShardOptions, Wrap,
};
pub use state::{State, StateInfo, StateSaveOptions};
pub use step::{LossMean, NotFinite, Schedule, Step, StepOptions, StepResult};
pub use tensor::{run_backward, DeviceType, Tensor, TensorInfo};
pub use tokenizer::{Prompt, Tokenizer, TokenizerInfo};
pub use unit::{Event, EventKind, ShardStats, UnitInfo, UnitSettings, UnitState};
