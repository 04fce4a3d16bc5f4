//! Chat templates: Jinja as transformers runs it, without what a template could do to the process.
//!
//! Left out, as a stated subset: `strftime_now` (a template that asks whether it is defined takes its fixed date, so that all ranks
//! write the same text). What stands in a `generation` statement, which marks answers, is written as it is. A value that is written by
//! itself has Python's words for true, false and none; one inside a list, or joined to a text, has minijinja's.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{escape_formatter, Environment, Error, ErrorKind, Output, State};

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

/// Python's `json.dumps(value, ensure_ascii=False)`, with transformers' other options: minijinja's own filter escapes for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let comma = if indent.is_some() { "," } else { ", " };
    let [comma, colon] = separators
        .unwrap_or_else(|| vec![comma.into(), ": ".into()])
        .try_into()
        .map_err(|_| {
            Error::new(
                ErrorKind::InvalidOperation,
                "separators: expected two texts",
            )
        })?;
    let style = Style {
        comma,
        colon,
        indent,
        ensure_ascii: ensure_ascii.unwrap_or(false),
        sort_keys: sort_keys.unwrap_or(false),
    };
    let json = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(text)
}

struct Style {
    comma: String,
    colon: String,
    indent: Option<usize>,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Style {
    fn new_line(&self, depth: usize, text: &mut String) {
        if let Some(indent) = self.indent {
            text.push('\n');
            text.push_str(&" ".repeat(indent * depth));
        }
    }

    fn write_text(&self, value: &str, text: &mut String) {
        let quoted = serde_json::Value::from(value).to_string();
        for c in quoted.chars() {
            if !self.ensure_ascii || (c.is_ascii() && c != '\u{7f}') {
                text.push(c);
            } else {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }

    fn write(&self, value: &serde_json::Value, depth: usize, text: &mut String) {
        match value {
            serde_json::Value::String(string) => self.write_text(string, text),
            serde_json::Value::Array(items) if !items.is_empty() => {
                text.push('[');
                for (i, item) in items.iter().enumerate() {
                    text.push_str(if i > 0 { &self.comma } else { "" });
                    self.new_line(depth + 1, text);
                    self.write(item, depth + 1, text);
                }
                self.new_line(depth, text);
                text.push(']');
            }
            serde_json::Value::Object(entries) if !entries.is_empty() => {
                let mut entries: Vec<_> = entries.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| key.as_str());
                }
                text.push('{');
                for (i, (key, item)) in entries.into_iter().enumerate() {
                    text.push_str(if i > 0 { &self.comma } else { "" });
                    self.new_line(depth + 1, text);
                    self.write_text(key, text);
                    text.push_str(&self.colon);
                    self.write(item, depth + 1, text);
                }
                self.new_line(depth, text);
                text.push('}');
            }
            other => text.push_str(&other.to_string()),
        }
    }
}

/// Statements of a scope of their own in place of `generation`, which minijinja lacks: the text between them stays as it is.
fn without_generation(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin + 2);
        let end = tag.find("%}").unwrap_or(tag.len());
        let (inside, after) = tag.split_at(end);
        text.push_str(before);
        let name = inside.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        match name {
            "generation" => text.push_str(&inside.replace(name, "with generation = true")),
            "endgeneration" => text.push_str(&inside.replace(name, "endwith")),
            _ => text.push_str(inside),
        }
        rest = after;
    }
    text + rest
}

/// `True`, `False` and `None`, as Jinja writes them.
fn format_value(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    let text = match value.kind() {
        ValueKind::Bool if value.is_true() => "True",
        ValueKind::Bool => "False",
        ValueKind::None => "None",
        _ => return escape_formatter(out, state, value),
    };
    Ok(out.write_str(text)?)
}

/// As in Python, where none cannot be gone through.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
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
        environment.add_filter("tojson", to_json);
        environment.add_test("iterable", is_iterable);
        environment.set_formatter(format_value);
        environment.add_template_owned(NAME, without_generation(source))?;
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
