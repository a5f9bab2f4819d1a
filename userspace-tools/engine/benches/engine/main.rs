// SPDX-License-Identifier: GPL-2.0

//! What the engine costs a packet: both sides of a connection, from the work request to its completion, without the
//! CRC and without the copies. Time is that of this host; instructions are counted by callgrind and repeat exactly.
//!
//! `cargo bench` prints a line for each scenario. With `--json` it prints one JSON object; with `--run NAME MESSAGES`
//! it only runs (that is what callgrind looks at).

mod pair;

use std::process::Command;
use std::time::Instant;

use pair::Pair;
use pair::Scenario;
use pair::SCENARIOS;

/// Packets of a timed run, and how many such runs there are; the fastest counts. A run is shorter than the scheduler's
/// slice, so that on a busy host some are undisturbed.
const PACKETS: u64 = 1600;
const RUNS: usize = 400;
/// Messages that callgrind sees: instructions are those that the longer run has more.
const COUNTED: [u64; 2] = [200, 1200];

struct Figures {
    name: &'static str,
    ns: f64,
    instructions: Option<f64>,
}

fn nanoseconds(scenario: &Scenario) -> f64 {
    let mut pair = Pair::new();
    let runs = (0..RUNS).map(|_| {
        let began = Instant::now();
        let packets = pair.run(scenario, PACKETS / scenario.packets());
        began.elapsed().as_nanos() as f64 / packets as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}

/// Instructions that this program needs for a run, by callgrind; `None` where there is none.
fn instructions(name: &str, messages: u64) -> Option<u64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--run", name, &messages.to_string()])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn measure(scenario: &Scenario) -> Figures {
    let packets = COUNTED.map(|messages| Pair::new().run(scenario, messages));
    let counted = COUNTED.map(|messages| instructions(scenario.name, messages));
    let instructions = match counted {
        [Some(few), Some(many)] => Some((many - few) as f64 / (packets[1] - packets[0]) as f64),
        _ => None,
    };
    Figures {
        name: scenario.name,
        ns: nanoseconds(scenario),
        instructions,
    }
}

fn print_json(figures: &[Figures]) {
    let mut fields = Vec::new();
    for f in figures {
        fields.push(format!("\"engine_{}_ns\": {:.1}", f.name, f.ns));
        if let Some(count) = f.instructions {
            fields.push(format!("\"engine_{}_instructions\": {count:.1}", f.name));
        }
    }
    println!("{{{}}}", fields.join(", "));
}

fn print_table(figures: &[Figures]) {
    println!(
        "{:<12} {:>12} {:>24}",
        "", "ns/packet", "instructions/packet"
    );
    for f in figures {
        let count = match f.instructions {
            Some(count) => format!("{count:.0}"),
            None => "no valgrind here".into(),
        };
        println!("{:<12} {:>12.1} {count:>24}", f.name, f.ns);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [run, name, messages] = args.as_slice() {
        assert_eq!(run, "--run");
        let scenario = SCENARIOS.iter().find(|s| s.name == name);
        let scenario = scenario.expect("a scenario");
        Pair::new().run(scenario, messages.parse().expect("a number"));
        return;
    }
    let figures: Vec<Figures> = SCENARIOS.iter().map(measure).collect();
    if args.iter().any(|arg| arg == "--json") {
        print_json(&figures);
    } else {
        print_table(&figures);
    }
}
