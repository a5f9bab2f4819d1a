// SPDX-License-Identifier: GPL-2.0

//! Chooses inputs, changes them, and keeps those that do something new.

use std::collections::HashSet;
use std::fmt::Write;
use std::io::Write as _;
use std::panic::catch_unwind;
use std::path::PathBuf;

use ferroce_engine::sim::Rng;

/// Longest input, and longest that is kept.
const MOST: usize = 6000;
const KEPT: usize = 300;

/// Numbers that are often the edge of something.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    40,
    255,
    256,
    1024,
    4096,
    0x8000_0000,
    u64::MAX,
];

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn path(name: &str) -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/fuzz/corpus").join(format!("{name}.txt"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings grow");
        text
    })
}

fn unhex(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().chunks(2);
    digits
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("hexadecimal")
        })
        .collect()
}

fn load(name: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(path(name)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(unhex).collect()
}

fn keep(name: &str, input: &[u8]) {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path(name));
    let line = hex(input) + "\n";
    file.expect("the corpus")
        .write_all(line.as_bytes())
        .expect("room");
}

/// One change.
fn change(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    let len = input.len() as u64;
    let at = rng.below(len + 1) as usize;
    match rng.below(9) {
        0 if len > 0 => input[at.min(len as usize - 1)] ^= 1 << rng.below(8),
        1 if len > 0 => input[at.min(len as usize - 1)] = rng.next_u64() as u8,
        2 => input.insert(at, rng.next_u64() as u8),
        3 if len > 0 => {
            let end = (at + 1 + rng.below(16) as usize).min(input.len());
            input.drain(at.min(end)..end);
        }
        4 => {
            let end = (at + rng.below(40) as usize).min(input.len());
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        5 | 6 => {
            // A number of some size, in either byte order.
            let value = rng.pick(&EDGES).wrapping_add(rng.below(3)).wrapping_sub(1);
            let size = rng.pick(&[1, 2, 3, 4, 8]);
            let big = value.to_be_bytes();
            let little = value.to_le_bytes();
            let bytes = if rng.per_mille(500) {
                &big[8 - size..]
            } else {
                &little[..size]
            };
            for (to, from) in input.iter_mut().skip(at).zip(bytes) {
                *to = *from;
            }
        }
        7 if !other.is_empty() => {
            let from = rng.below(other.len() as u64) as usize;
            let end = (from + rng.below(60) as usize).min(other.len());
            input.splice(at..at, other[from..end].iter().copied());
        }
        _ => input.extend((0..rng.below(8)).map(|_| rng.next_u64() as u8)),
    }
    input.truncate(MOST);
}

/// Runs `target`, which returns a number for what happened, on the corpus and on changed inputs.
pub fn fuzz(name: &str, runs: u64, target: fn(&[u8]) -> u64) {
    let mut pool = load(name);
    assert!(!pool.is_empty(), "the corpus of {name} is missing");
    let mut rng = Rng::new(number("FUZZ_SEED", 1));
    let keeps = number("FUZZ_KEEP", 0) != 0;
    let mut seen = HashSet::new();
    let mut run = |input: &[u8]| match catch_unwind(|| target(input)) {
        Ok(what) => seen.insert(what),
        Err(panic) => {
            eprintln!(
                "put this line into tests/fuzz/corpus/{name}.txt to repeat it:\n{}",
                hex(input)
            );
            std::panic::resume_unwind(panic);
        }
    };
    for input in &pool {
        run(input);
    }
    for _ in 0..number("FUZZ_RUNS", runs) {
        let mut input = pool[rng.below(pool.len() as u64) as usize].clone();
        for _ in 0..=rng.below(4) {
            let other = rng.below(pool.len() as u64) as usize;
            change(&mut rng, &mut input, &pool[other]);
        }
        if run(&input) {
            if keeps && input.len() < KEPT {
                keep(name, &input);
            }
            pool.push(input);
        }
    }
}

/// Mixes a value into a number for what happened.
pub fn mix(state: u64, value: u64) -> u64 {
    Rng::new(state ^ value.wrapping_mul(0x2545_f491_4f6c_dd1d)).next_u64()
}
