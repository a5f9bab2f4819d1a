// SPDX-License-Identifier: GPL-2.0

//! The command `ferroce`.

#![forbid(unsafe_code)]

mod cli;
mod devices;
mod perf;

use anyhow::Context;
use clap::CommandFactory;
use clap::Parser;
use cli::Cli;
use cli::Command;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Devices { json } => devices::run(json),
        Command::Perf(cli::Perf::Write(args)) => perf::run(&args),
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => man(&dir),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ferroce", &mut script);
    Ok(io::Write::write_all(&mut io::stdout(), &script)?)
}

fn man(dir: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write man pages into {}", dir.display()))
}
