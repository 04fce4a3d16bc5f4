//! Layers that the library has.

use crate::op::Value;
use crate::{ffi, sys, Error, Module, ModuleOptions, Result, Status};

/// Makes a layer that the library has, with PyTorch's names for it and for its options:
///
/// ```no_run
/// # fn main() -> fsdp2::Result<()> {
/// let block = fsdp2::layer!("Sequential")?;
/// block.add_child("up", &fsdp2::layer!("Linear", in_features = 8, out_features = 32)?)?;
/// block.add_child("act", &fsdp2::layer!("GELU", approximate = "tanh")?)?;
/// block.add_child("down", &fsdp2::layer!("Linear", in_features = 32, out_features = 8, bias = false)?)?;
/// # Ok(()) }
/// ```
///
/// [`Module::create_layer`] says more; the [`ModuleOptions`](crate::ModuleOptions) are the defaults.
#[macro_export]
macro_rules! layer {
    ($kind:expr $(, $option:ident = $value:expr)* $(,)?) => {
        $crate::Module::create_layer(
            $kind,
            &[$((stringify!($option), $crate::op::Value::from($value))),*],
            &::std::default::Default::default(),
        )
    };
}

impl Module {
    /// A layer that the library has: a module of the class `kind` whose forward is the library's. Options and parameters have
    /// PyTorch's names, meanings and defaults, and parameters begin as PyTorch's do, by the seed of the whole. A setting is a
    /// number, a flag, a text or a list of whole numbers; [`Value::None`] stands for one that is left out.
    /// [`layer!`](crate::layer) is short for this call.
    ///
    /// Kinds are `Linear`, `Embedding`, `LayerNorm`, `RMSNorm`, `Conv1d`, `Conv2d`, `Dropout`, `ReLU`, `SiLU`, `Tanh`, `GELU`,
    /// `Flatten`, `MultiheadAttention`, `TransformerEncoderLayer`, `TransformerEncoder`, `MLP`, `GatedMLP`, `Sequential`, which
    /// runs the children that it is given in order, and `ModuleList`, which only holds them. `include/fsdp2/custom.h` lists
    /// their options. What is added to any other kind, its forward does not use.
    ///
    /// A kind or an option that does not exist is [`Status::InvalidArgument`], and the message names the nearest that does.
    pub fn create_layer(
        kind: &str,
        settings: &[(&str, Value<'_>)],
        options: &ModuleOptions,
    ) -> Result<Self> {
        ffi::ready()?;
        let json = ffi::c_text(&json(settings)?)?;
        let kind = ffi::c_text(kind)?;
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe {
                    sys::fsdp2_module_create_layer(kind.as_ptr(), json.as_ptr(), raw, out)
                })
            })
            .map(Self::own)
    }
}

fn json(settings: &[(&str, Value<'_>)]) -> Result<String> {
    let members = settings
        .iter()
        .map(|(name, value)| Ok(format!("{}:{}", quoted(name), json_of(name, value)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(format!("{{{}}}", members.join(",")))
}

fn json_of(name: &str, value: &Value<'_>) -> Result<String> {
    match value {
        Value::None | Value::Default => Ok("null".to_string()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Double(number) => Ok(format!("{number:?}")), // with a point or an exponent
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Text(text) => Ok(quoted(text)),
        Value::Ints(numbers) => Ok(format!("{numbers:?}")),
        other => {
            let expected = "a number, a flag, a text or whole numbers";
            let message = format!("option {name}: expected {expected}, found {other:?}");
            Err(Error::new(Status::InvalidArgument, message))
        }
    }
}

fn quoted(text: &str) -> String {
    let escaped = |letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        '\0'..='\x1f' => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}
