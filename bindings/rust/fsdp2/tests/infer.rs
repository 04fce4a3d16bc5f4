//! Scores, losses and text of language models.

mod common;

use std::sync::Arc;

use common::{llama_on, on_ranks, tiny_llama};
use fsdp2::{no_grad, GenerateOptions, InferOptions, Reshard, Result, Status, Tensor};

const WORDS: i64 = 384;
const LENGTH: i64 = 6;

/// So many rows of tokens, which differ from rank to rank.
fn tokens(rank: i32, rows: i64) -> Tensor {
    let values: Vec<i64> = (0..rows * LENGTH)
        .map(|i| (i * 37 + i64::from(rank) * 11) % WORDS)
        .collect();
    Tensor::from_slice(&values, &[rows, LENGTH]).unwrap()
}

#[test]
fn scores_are_log_probabilities() -> Result<()> {
    let module = tiny_llama();
    let tokens = tokens(0, 3);
    let options = InferOptions {
        batch_size: 2,
        chunk_size: 4,
        temperature: 0.5,
        ..Default::default()
    };
    let scores = module.score([&tokens], &options)?;
    let logits = (no_grad(|| module.forward_one([&tokens]))? * 2.0)?;
    let all = logits.log_softmax(2)?;
    let labels = tokens.narrow(1, 1, LENGTH - 1)?;
    let of_labels = fsdp2::op!(
        "aten::gather",
        &all.narrow(1, 0, LENGTH - 1)?,
        2,
        &labels.unsqueeze(2)?
    )?;
    let found: Vec<f32> = scores.log_probs.read()?;
    assert_eq!(scores.log_probs.shape()?, [3, LENGTH - 1]);
    for (expected, found) in of_labels.read::<f32>()?.iter().zip(&found) {
        assert!((expected - found).abs() < 1e-4, "{expected}, {found}");
    }
    let most = (WORDS as f32).ln() + 1e-4;
    let entropies: Vec<f32> = scores.entropies.read()?;
    assert!(entropies.iter().all(|&nats| nats > 0.0 && nats < most));
    let wrong = InferOptions {
        temperature: 0.0,
        ..Default::default()
    };
    let error = module.score([&tokens], &wrong).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    Ok(())
}

#[test]
fn evaluation_is_the_mean_over_all_rows() {
    let found = on_ranks(3, |rank, mesh| -> Result<_> {
        let (module, _shard) = llama_on(&mesh);
        let whole = tiny_llama();
        let rows = tokens(rank, i64::from(2 - rank)); // the last rank has none
        let options = InferOptions {
            batch_size: 1,
            reshard_after_forward: Reshard::Never,
            ..Default::default()
        };
        let scores = whole.score([&rows], &Default::default())?;
        let own: Vec<f32> = scores.log_probs.read()?;
        Ok((module.evaluate([&rows], &options)?, own))
    });
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let all: Vec<f64> = found
        .iter()
        .flat_map(|(_, own)| own.iter().map(|&score| f64::from(score)))
        .collect();
    let mean = -all.iter().sum::<f64>() / all.len() as f64;
    for (evaluation, _) in &found {
        assert_eq!(evaluation.n_labels, 3 * (LENGTH - 1));
        assert!(
            (evaluation.loss - mean).abs() < 1e-5,
            "{evaluation:?}, {mean}"
        );
    }
}

#[test]
fn generation_stops_at_its_tokens() -> Result<()> {
    let module = tiny_llama();
    let prompts = [vec![1, 2, 3, 4], vec![7], vec![5, 9]];
    let mut options = GenerateOptions {
        max_new_tokens: 6,
        top_k: 50,
        top_p: 0.9,
        seed: 3,
        ..Default::default()
    };
    let free = module.generate_batch(&prompts, &options)?;
    assert!(free.iter().all(|text| text.len() == 6));
    options.stop_tokens = vec![free[0][2], WORDS - 1];
    let stopped = module.generate_batch(&prompts, &options)?;
    for (free, stopped) in free.iter().zip(&stopped) {
        let at = free
            .iter()
            .position(|token| options.stop_tokens.contains(token));
        assert_eq!(stopped[..], free[..at.map_or(6, |at| at + 1)]);
    }
    assert!(stopped[0].len() <= 3);
    for (row, prompt) in prompts.iter().enumerate() {
        options.first_row = row as i64;
        assert_eq!(module.generate(prompt, &options)?, stopped[row]);
    }
    let pixels = Arc::new(Tensor::from_slice(&[0f32], &[1])?);
    let seeing = GenerateOptions {
        vision_inputs: vec![None, Some(pixels)],
        ..Default::default()
    };
    let error = module.generate(&prompts[0], &seeing).unwrap_err();
    assert!(
        error
            .message()
            .contains("takes 0 inputs of images and videos, found 2"),
        "{error}"
    );
    let none: [Vec<i64>; 0] = [];
    assert!(module.generate_batch(&none, &options)?.is_empty());
    let error = module
        .generate_batch(&[vec![1], vec![]], &options)
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("lengths"), "{error}");
    Ok(())
}
