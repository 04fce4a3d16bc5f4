//! Serves a Hugging Face model that is sharded over the ranks of a job: a program in any language sends requests to rank 0 over a
//! socket, and all ranks carry them out together.
//!
//! `fsdp2 run --nproc-per-node 2 -- sidecar MODEL_DIRECTORY 127.0.0.1:0` prints the address that it listens on. A request is a
//! line; an answer is a line that begins with "ok" or "error". Tokens are numbers, in rows of equal length; each rank takes its
//! share of the rows, and the answer is the mean loss over all of them.
//!
//! ```text
//! parameters                  ok N, and N lines: NAME [SIZE, ...]
//! forward ROWS TOKEN...       ok LOSS        keeps the graph of the loss for `backward`
//! backward                    ok             adds to the gradients
//! step LR MAX_NORM            ok NORM        clips, updates, forgets the gradients
//! get NAME                    ok BYTES, and as many bytes: the whole parameter, f32, row-major
//! set NAME BYTES              ok             and as many bytes behind the line of the request
//! quit                        ok
//! ```

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::str::{FromStr, SplitWhitespace};

use fsdp2::{
    no_grad, op, AdamwOptions, Dtype, Mesh, MeshOptions, Module, Optimizer, ReduceOp, Shard,
    Tensor, Which,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Server {
    mesh: Mesh,
    rank: i64,
    ranks: i64,
    module: Module,
    shard: Shard,
    optimizer: Optimizer,
    loss: Option<Tensor>,
}

fn next<T: FromStr>(words: &mut SplitWhitespace<'_>, what: &str) -> Outcome<T> {
    let word = words.next().and_then(|word| word.parse().ok());
    word.ok_or_else(|| format!("expected {what}").into())
}

impl Server {
    fn start(directory: &str) -> fsdp2::Result<Self> {
        let mesh = Mesh::create(&MeshOptions {
            timeout_ms: 24 * 3_600_000, // between two requests
            ..Default::default()
        })?;
        let info = mesh.info()?;
        let module = Module::from_pretrained(directory, &Default::default())?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        Ok(Self {
            rank: info.rank.into(),
            ranks: info.world_size.into(),
            optimizer: Optimizer::create_adamw(&shard, &AdamwOptions::default())?,
            loss: None,
            mesh,
            module,
            shard,
        })
    }

    /// What rank 0 has, on every rank.
    fn share(&self, mut bytes: Vec<u8>) -> fsdp2::Result<Vec<u8>> {
        let length = Tensor::from_slice(&[bytes.len() as i64], &[])?;
        self.mesh.broadcast(0, &length)?;
        bytes.resize(length.value()? as usize, 0);
        let shared = Tensor::from_slice(&bytes, &[bytes.len() as i64])?;
        self.mesh.broadcast(0, &shared)?;
        shared.read()
    }

    /// One request, on all ranks alike. Bytes that came with it are on rank 0; those of the answer matter there.
    fn answer(&mut self, request: &str, bytes: &[u8]) -> Outcome<(String, Vec<u8>)> {
        let words = &mut request.split_whitespace();
        let text = match words.next().unwrap_or_default() {
            "parameters" => self.parameters()?,
            "forward" => self.forward(words)?.to_string(),
            "backward" => {
                self.loss.take().ok_or("no forward yet")?.backward()?;
                String::new()
            }
            "step" => self.step(words)?.to_string(),
            "get" => return self.get(words),
            "set" => self.set(words, bytes)?,
            "quit" => String::new(),
            other => return Err(format!("no request is called '{other}'").into()),
        };
        Ok((format!("ok {text}"), Vec::new()))
    }

    fn parameters(&self) -> Outcome<String> {
        let n = self.shard.parameter_count()?;
        let mut text = n.to_string();
        for index in 0..n {
            let shape = self.shard.parameter_info(index)?.shape;
            text += &format!("\n{} {shape:?}", self.shard.parameter_name(index, 0)?);
        }
        Ok(text)
    }

    fn forward(&mut self, words: &mut SplitWhitespace<'_>) -> Outcome<f64> {
        let rows: i64 = next(words, "a number of rows")?;
        let tokens = words.map(i64::from_str).collect::<Result<Vec<_>, _>>()?;
        let length = tokens.len() as i64 / rows.max(1);
        if rows < 1 || rows % self.ranks != 0 || length < 2 {
            return Err(format!("expected rows for each of {} ranks", self.ranks).into());
        }
        let share = rows / self.ranks;
        let mine =
            Tensor::from_vec(tokens, &[rows, length])?.narrow(0, self.rank * share, share)?;
        let inputs = mine.narrow(1, 0, length - 1)?;
        let labels = mine.narrow(1, 1, length - 1)?;
        let loss = self.module.forward_one([&inputs, &labels])?;
        let mut mean = [loss.value()?];
        self.mesh.all_reduce(&mut mean, ReduceOp::Average)?;
        self.loss = Some(loss);
        Ok(mean[0])
    }

    fn step(&self, words: &mut SplitWhitespace<'_>) -> Outcome<f64> {
        let (lr, max_norm) = (next(words, "a rate")?, next(words, "a norm")?);
        self.optimizer.set_lr(lr)?;
        let norm = self.shard.clip_grad_norm(max_norm, 2.0)?;
        self.optimizer.run()?;
        self.shard.zero_grad()?;
        Ok(norm)
    }

    fn get(&self, words: &mut SplitWhitespace<'_>) -> Outcome<(String, Vec<u8>)> {
        let name: String = next(words, "a parameter")?;
        let index = self.shard.parameter_index(&name)?;
        let whole = self
            .shard
            .parameter(index, Which::Full)?
            .to_dtype(Dtype::F32)?;
        let mut bytes = vec![0; whole.info()?.n_bytes as usize];
        whole.read_bytes(&mut bytes)?;
        Ok((format!("ok {}", bytes.len()), bytes))
    }

    /// Rank 0 has the whole parameter, and each rank gets its rows.
    fn set(&self, words: &mut SplitWhitespace<'_>, bytes: &[u8]) -> Outcome<String> {
        let name: String = next(words, "a parameter")?;
        let index = self.shard.parameter_index(&name)?;
        let info = self.shard.parameter_info(index)?;
        let n_bytes: i64 = next(words, "a number of bytes")?;
        if n_bytes != 4 * info.shape.iter().product::<i64>() {
            return Err(format!("{name} has the sizes {:?} in f32", info.shape).into());
        }
        self.shard.reset()?; // what forwards have kept gathered is of the old values
        let make = || Tensor::from_buffer(bytes, Dtype::F32, &info.shape);
        let whole = (self.rank == 0).then(make).transpose()?;
        let rows = self
            .mesh
            .scatter(0, whole.as_ref(), info.shard_dim.max(0))?;
        let local = self.shard.parameter(index, Which::Local)?;
        no_grad(|| op!("aten::copy_", &local, &rows))?;
        Ok(String::new())
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, address] =
        <[String; 2]>::try_from(arguments).map_err(|_| "usage: sidecar MODEL_DIRECTORY ADDRESS")?;
    let mut server = Server::start(&directory)?;
    let mut client = None;
    if server.rank == 0 {
        let listener = TcpListener::bind(address)?;
        println!("listening on {}", listener.local_addr()?);
        client = Some(BufReader::new(listener.accept()?.0));
    }
    loop {
        let (mut line, mut bytes) = (String::new(), Vec::new());
        if let Some(client) = &mut client {
            if client.read_line(&mut line)? == 0 {
                line = "quit".to_string(); // the client is gone
            }
            if line.starts_with("set ") {
                let n = line.split_whitespace().nth(2).unwrap_or_default();
                client.take(n.parse()?).read_to_end(&mut bytes)?;
            }
        }
        let request = String::from_utf8(server.share(line.into_bytes())?)?;
        let failed = |error| (format!("error {error}"), Vec::new());
        let (text, bytes) = server.answer(&request, &bytes).unwrap_or_else(failed);
        if let Some(client) = &mut client {
            writeln!(client.get_mut(), "{}", text.trim_end())?;
            client.get_mut().write_all(&bytes)?;
        }
        if request.trim() == "quit" {
            return Ok(());
        }
    }
}
