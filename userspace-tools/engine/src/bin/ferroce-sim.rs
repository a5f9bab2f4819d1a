// SPDX-License-Identifier: GPL-2.0

//! The simulator: many runs as a test suite, or one run with a trace.

#![forbid(unsafe_code)]

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use ferroce_engine::pcap;
use ferroce_engine::sim::world::Cover;
use ferroce_engine::sim::world::Outcome;
use ferroce_engine::sim::world::Plan;
use ferroce_engine::sim::world::World;

const USAGE: &str = "\
usage: ferroce-sim suite [--runs N] [--first SEED] [--threads N] [--seconds N] [--cover FILE] [--brief]
       ferroce-sim run SEED [--pcap FILE] [--quiet]

suite  makes N runs (10000), each from a seed of its own, prints KTAP, and writes what the
       runs have met to FILE. It fails if a rule is broken, or if something that must be
       met was not. --seconds ends it early; --brief ends it at the first failure and does
       not look at what was met.
run    makes one run and prints all that happens in it; --pcap keeps its packets.
";

/// What the command line says.
struct Options {
    words: Vec<String>,
}

impl Options {
    /// Whether a flag is given.
    fn flag(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// The word after a flag.
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// The number after a flag.
    fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        match self.value(name) {
            None if self.flag(name) => Err(format!("{name} needs a number")),
            None => Ok(default),
            Some(text) => number(text),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{text}: {error}"))
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let options = Options {
        words: words.collect(),
    };
    let done = match command.as_str() {
        "suite" => suite(&options),
        "run" => run(&options),
        "--help" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("ferroce-sim: {text}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    let seed = number(options.words.first().ok_or("which seed?")?)?;
    let tell = !options.flag("--quiet");
    let file = options.value("--pcap").map(PathBuf::from);
    if tell {
        println!("{:#?}", Plan::new(seed));
    }
    let outcome = World::run(seed, tell, file.is_some());
    if let Some(file) = file {
        let frames = outcome.frames.iter().map(|(at, bytes)| (at.0, &bytes[..]));
        std::fs::write(&file, pcap::write(frames))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{} packets in {}", outcome.frames.len(), file.display());
    }
    match &outcome.breach {
        None => println!("seed {seed}: ok"),
        Some(text) => println!("seed {seed}: {text}"),
    }
    Ok(outcome.breach.is_none())
}

/// What all threads share.
struct Shared {
    next: AtomicU64,
    until: u64,
    ends: Instant,
    brief: bool,
    failed: Mutex<Vec<(u64, String)>>,
    cover: Mutex<Cover>,
}

impl Shared {
    fn work(&self) {
        let mut cover = Cover::default();
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let enough = self.brief && !self.failed.lock().unwrap().is_empty();
            if seed >= self.until || enough || Instant::now() > self.ends {
                break;
            }
            let text = match catch_unwind(|| World::run(seed, false, false)) {
                Ok(Outcome {
                    cover: met, breach, ..
                }) => {
                    cover.add(&met);
                    breach
                }
                Err(panic) => Some(words_of(&*panic)),
            };
            if let Some(text) = text {
                self.failed.lock().unwrap().push((seed, text));
            }
        }
        self.cover.lock().unwrap().add(&cover);
    }
}

/// What a panic said.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("no text"))
}

fn suite(options: &Options) -> Result<bool, String> {
    let runs = options.number("--runs", 10_000)?;
    let first = options.number("--first", 0)?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = options.number("--threads", threads)?;
    let seconds = options.number("--seconds", 1000)?;
    let began = Instant::now();
    std::panic::set_hook(Box::new(|_| ()));
    let shared = Shared {
        next: AtomicU64::new(first),
        until: first + runs,
        ends: began + Duration::from_secs(seconds),
        brief: options.flag("--brief"),
        failed: Mutex::default(),
        cover: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| shared.work());
        }
    });
    let cover = shared.cover.into_inner().unwrap();
    let mut failed = shared.failed.into_inner().unwrap();
    failed.sort_unstable();
    let missing = if shared.brief {
        Vec::new()
    } else {
        cover.missing()
    };
    if let Some(file) = options.value("--cover") {
        std::fs::write(file, cover.report()).map_err(|error| format!("{file}: {error}"))?;
    }
    println!("TAP version 14\n1..1\n  # Subtest: sim\n  1..3");
    let made = shared.next.into_inner().min(shared.until) - first;
    for (seed, text) in failed.iter().take(10) {
        println!("  # seed {seed}: {text}");
        println!("  # repeat it with: make sim SEED={seed}");
    }
    println!("  # {} of {made} runs have failed", failed.len());
    verdict(failed.is_empty(), 1, "no run breaks a rule");
    println!(
        "  # {made} runs of {runs} in {} s",
        began.elapsed().as_secs()
    );
    verdict(made >= runs || shared.brief, 2, "all runs are made in time");
    for what in missing.iter().take(40) {
        println!("  # never met: {what}");
    }
    let wanted = cover.wanted();
    println!(
        "  # {} of {wanted} pairs of opcode, fault and state met",
        wanted - missing.len()
    );
    verdict(missing.is_empty(), 3, "everything that must be met was met");
    let good = failed.is_empty() && missing.is_empty() && (made >= runs || shared.brief);
    println!("{} 1 sim", if good { "ok" } else { "not ok" });
    Ok(good)
}

fn verdict(good: bool, number: u32, name: &str) {
    println!("  {} {number} {name}", if good { "ok" } else { "not ok" });
}
