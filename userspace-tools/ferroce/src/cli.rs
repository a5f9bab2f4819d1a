// SPDX-License-Identifier: GPL-2.0

//! The command line: the one source of help, completions and man pages.

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// Tools for RDMA through /dev/ferroce, the device file of the ferroce module
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the ferroce devices, with their state and addresses
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure the performance between two machines
    #[command(subcommand, arg_required_else_help = true)]
    Perf(Perf),
    /// Print the completion script of a shell
    ///
    /// For bash: ferroce completions bash > /etc/bash_completion.d/ferroce
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// The directory, which must exist
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum Perf {
    /// Measure the bandwidth of RDMA writes over a reliable connection
    ///
    /// Start it without SERVER on one machine, then with that machine's name or
    /// address on the other. The client tells the server what is to be done,
    /// writes into the server's memory, and the server checks what has arrived.
    #[command(after_long_help = "Example:\n  server$ ferroce perf write\n  \
                                 client$ ferroce perf write --size 1M --duration 5 10.0.0.1")]
    Write(WriteArgs),
}

#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The machine where the server runs; without it, this is the server
    pub server: Option<String>,

    /// RDMA device to use [default: the one with the TCP connection's address]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,

    /// Entry of the device's GID table to use [default: the TCP connection's address]
    #[arg(short = 'x', long, value_name = "N")]
    pub gid_index: Option<u8>,

    /// TCP port over which the two sides find each other
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub port: u16,

    /// Bytes of a write; K, M and G multiply by powers of 1024 [client only]
    #[arg(short, long, value_name = "BYTES", default_value = "64K", value_parser = parse_size)]
    pub size: u32,

    /// How many writes to do [client only]
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,

    /// Do writes for so many seconds instead [client only]
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters",
          value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// How many writes are under way at a time [client only]
    #[arg(short = 't', long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub depth: u32,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// The largest write that can be asked for.
const MAX_SIZE: u32 = 1 << 30;

fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "not a number of bytes, such as 64K".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(size @ 1..=MAX_SIZE) => Ok(size),
        _ => Err("it must be from 1 to 1G".to_owned()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it must be a number of seconds, at most 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1"), Ok(1));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1m"), Ok(1 << 20));
        assert_eq!(parse_size("1G"), Ok(MAX_SIZE));
        for bad in ["", "0", "K", "-1", "2G", "4294967296", "1.5K", "64KB", "é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "0", "-1", "nan", "inf", "1e9", "5s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn duration_and_iters_exclude_each_other() {
        let parse = |args: &[&str]| Cli::try_parse_from(args);
        assert!(parse(&["ferroce", "perf", "write", "-D", "1", "host"]).is_ok());
        assert!(parse(&["ferroce", "perf", "write", "-D", "1", "-n", "5", "host"]).is_err());
        assert!(parse(&["ferroce", "perf", "write", "-n", "0"]).is_err());
        assert!(parse(&["ferroce", "perf", "write", "--depth", "0"]).is_err());
    }
}
