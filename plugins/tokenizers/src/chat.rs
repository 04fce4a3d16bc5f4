//! Chat templates: Jinja as transformers runs it, without what a template could do to the process.
//!
//! Left out, as a stated subset: `strftime_now` (a template that asks whether it is defined takes its fixed date, so that all ranks
//! write the same text) and the `generation` statement.

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};

use crate::abi::Problem;

/// Steps that a template may take: far more than a long chat needs, and an end for those that have none.
const FUEL: u64 = 20_000_000;
const LONGEST_SOURCE: usize = 1 << 20;
const NAME: &str = "chat_template";

pub struct Template {
    environment: Environment<'static>,
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

impl Template {
    pub fn open(source: &str) -> Result<Template, Problem> {
        if source.len() > LONGEST_SOURCE {
            return Err(format!("has {} bytes, more than {LONGEST_SOURCE}", source.len()).into());
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, source.to_string())?;
        Ok(Template { environment })
    }

    /// `context` is a JSON object.
    pub fn render(&self, context: &str) -> Result<String, Problem> {
        let variables: serde_json::Value = serde_json::from_str(context)?;
        Ok(self
            .environment
            .get_template(NAME)?
            .render(Value::from_serialize(&variables))?)
    }
}
