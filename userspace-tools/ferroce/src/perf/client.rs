// SPDX-License-Identifier: GPL-2.0

//! The client: writes, and takes the time.

use super::exchange::Channel;
use super::exchange::Endpoint;
use super::exchange::Message;
use super::exchange::PROTOCOL;
use super::pattern;
use super::port;
use super::port::Side;
use super::port::Wish;
use super::report::Report;
use super::report::Work;
use crate::cli::WriteArgs;
use anyhow::Context as _;
use anyhow::bail;
use ferroce::Access;
use ferroce::Context;
use std::io::Write;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::time::Duration;
use std::time::Instant;

/// Small writes go round a region of this size.
const MIN_REGION: u32 = 4096;
/// A completion is asked for at least every so many bytes.
const MAX_UNSIGNALED: u32 = 4 << 20;
/// Without a completion for so long the run has failed. A dead peer is noticed
/// before: the device gives up its retries.
const STALL: Duration = Duration::from_secs(60);
/// How often the server hears from us.
const PROGRESS: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);

pub fn run(args: &WriteArgs, server: &str) -> anyhow::Result<()> {
    let context = Context::open()?;
    let mut channel = Channel::new(connect(server, args.port)?)?;
    let result = measure(&mut channel, context, args);
    if let Err(error) = &result {
        // The server may be gone; then there is nobody to tell.
        let _ = channel.send(&Message::Failed {
            reason: format!("{error:#}"),
        });
    }
    let report = result?;
    let text = if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.text()
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn connect(server: &str, port: u16) -> anyhow::Result<TcpStream> {
    let addresses = (server, port)
        .to_socket_addrs()
        .with_context(|| format!("cannot find the address of {server}"))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.with_context(|| format!("{server} has no address"))?).with_context(|| {
        format!("cannot reach {server} on TCP port {port}: does `ferroce perf write` run there?")
    })
}

fn measure(channel: &mut Channel, context: Context, args: &WriteArgs) -> anyhow::Result<Report> {
    let local = channel.stream().local_addr()?.ip();
    let wish = Wish {
        device: args.device.as_deref(),
        gid_index: args.gid_index,
    };
    let port = port::choose(&context.devices()?, wish, local)?;
    let region = args.size.max(MIN_REGION) as usize;
    let mut side = Side::new(context, port, region, Access::LOCAL_READ, args.depth)?;
    let seed = port::random()?;
    pattern::fill(side.mr.buffer(), seed, region);

    let hello = Message::Hello {
        protocol: PROTOCOL,
        region,
        endpoint: side.endpoint(),
    };
    channel.send(&hello)?;
    let Message::Welcome {
        endpoint: server,
        address,
        rkey,
    } = channel.receive()?
    else {
        bail!("the server did not introduce itself");
    };
    side.connect(&server, Access::LOCAL_READ)?;

    let target = Target { address, rkey };
    let limit = if args.duration.is_some() {
        u64::MAX
    } else {
        args.iters
    };
    let mut run = Run::new(args.size, args.depth, limit);
    let start = Instant::now();
    run.drive(
        channel,
        &mut side,
        target,
        args.duration.map(|time| start + time),
    )?;
    let work = Work {
        size: args.size,
        depth: args.depth,
        writes: run.done,
        time: start.elapsed(),
    };
    let len = run.slots.min(run.done) as usize * args.size as usize;
    channel.send(&Message::Done {
        writes: run.done,
        seed,
        len,
    })?;
    judge(channel, &side, &server, work)
}

fn judge(
    channel: &mut Channel,
    side: &Side,
    server: &Endpoint,
    work: Work,
) -> anyhow::Result<Report> {
    match channel.receive()? {
        Message::Verdict { wrong: None } => Ok(Report::new(
            &side.port,
            server.gid,
            side.path_mtu(server),
            work,
        )),
        Message::Verdict { wrong: Some(place) } => bail!(
            "{} writes completed without an error, but the server found wrong data: byte {place} \
             of its memory is the first",
            work.writes
        ),
        message => bail!("the server said something unexpected: {message:?}"),
    }
}

/// The server's memory.
#[derive(Clone, Copy, Debug)]
struct Target {
    address: u64,
    rkey: u32,
}

/// A run of writes. Only every few writes ask for a completion, which then
/// stands for those before it too.
#[derive(Debug)]
struct Run {
    size: u32,
    depth: u64,
    /// How many writes fit into the region side by side.
    slots: u64,
    /// A write of so many asks for a completion.
    period: u64,
    limit: u64,
    posted: u64,
    done: u64,
}

impl Run {
    fn new(size: u32, depth: u32, limit: u64) -> Self {
        Run {
            size,
            depth: depth.into(),
            slots: (MIN_REGION / size).max(1).into(),
            period: (depth / 4).min(MAX_UNSIGNALED / size).max(1).into(),
            limit,
            posted: 0,
            done: 0,
        }
    }

    fn drive(
        &mut self,
        channel: &mut Channel,
        side: &mut Side,
        target: Target,
        deadline: Option<Instant>,
    ) -> anyhow::Result<()> {
        let mut reported = Instant::now();
        let mut moved = reported;
        while self.done < self.limit {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) && self.limit == u64::MAX {
                // A last one, which asks for the completion of all.
                self.limit = self.posted + 1;
            }
            if now - reported >= PROGRESS {
                channel.send(&Message::Progress { writes: self.done })?;
                reported = now;
            }
            while self.posted < self.limit && self.posted - self.done < self.depth {
                self.post(side, target)?;
            }
            if self.complete(side)? {
                moved = now;
            } else if now - moved >= STALL {
                bail!("write {} has not completed within {STALL:?}", self.done + 1);
            }
        }
        Ok(())
    }

    fn post(&mut self, side: &mut Side, target: Target) -> anyhow::Result<()> {
        let offset = self.posted % self.slots * u64::from(self.size);
        self.posted += 1;
        let signaled = self.posted % self.period == 0 || self.posted == self.limit;
        let piece = side.mr.piece(offset, self.size);
        Ok(side.qp.write(
            self.posted,
            piece,
            target.address + offset,
            target.rkey,
            signaled,
        )?)
    }

    /// Submits what was posted, waits a while for a completion, takes all that
    /// there are; false if there was none.
    fn complete(&mut self, side: &mut Side) -> anyhow::Result<bool> {
        side.device
            .enter(&[&side.qp], Some((&side.cq, 1)), Some(PROGRESS))?;
        let before = self.done;
        while let Some(completion) = side.cq.poll() {
            completion
                .result
                .with_context(|| format!("write {} failed", completion.wr_id))?;
            self.done = completion.wr_id;
        }
        Ok(self.done > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_always_has_a_completion_under_way() {
        for depth in [1, 2, 3, 4, 7, 128, 8192] {
            for size in [1, 65536, 1 << 30] {
                let run = Run::new(size, depth, u64::MAX);
                assert!(
                    run.period >= 1 && run.period <= run.depth,
                    "{depth} of {size}"
                );
            }
        }
    }

    #[test]
    fn small_writes_lie_side_by_side() {
        assert_eq!(Run::new(1, 1, 1).slots, 4096);
        assert_eq!(Run::new(1000, 1, 1).slots, 4);
        assert_eq!(Run::new(4096, 1, 1).slots, 1);
        assert_eq!(Run::new(65536, 1, 1).slots, 1);
    }
}
