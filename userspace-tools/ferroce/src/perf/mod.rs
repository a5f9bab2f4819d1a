// SPDX-License-Identifier: GPL-2.0

//! `ferroce perf`: a server that lends its memory, and a client that writes
//! into it as fast as it can.

mod client;
mod exchange;
mod pattern;
mod port;
mod report;
mod server;

use crate::cli::WriteArgs;

pub fn run(args: &WriteArgs) -> anyhow::Result<()> {
    match &args.server {
        Some(server) => client::run(args, server),
        None => server::run(args),
    }
}
