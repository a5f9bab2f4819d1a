// SPDX-License-Identifier: GPL-2.0

//! What the client says in the end.

use super::port::Port;
use ferroce::Gid;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Report {
    pub device: String,
    pub gid: Gid,
    pub peer: Gid,
    pub path_mtu: u32,
    pub depth: u32,
    pub size: u32,
    pub writes: u64,
    pub seconds: f64,
    pub bytes_per_second: f64,
    pub writes_per_second: f64,
    /// The server found in its memory what was sent.
    pub verified: bool,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub size: u32,
    pub depth: u32,
    pub writes: u64,
    pub time: Duration,
}

impl Report {
    pub fn new(port: &Port, peer: Gid, path_mtu: u32, work: Work) -> Self {
        let seconds = work.time.as_secs_f64().max(1e-9);
        let writes_per_second = work.writes as f64 / seconds;
        Report {
            device: port.device.name.clone(),
            gid: port.gid,
            peer,
            path_mtu,
            depth: work.depth,
            size: work.size,
            writes: work.writes,
            seconds,
            bytes_per_second: writes_per_second * f64::from(work.size),
            writes_per_second,
            verified: true,
        }
    }

    pub fn text(&self) -> String {
        format!(
            "RDMA write, {} {} to {}, path MTU {}, depth {}\n\
             {:>10} {:>12} {:>10} {:>10} {:>12}\n\
             {:>10} {:>12} {:>10.3} {:>10.2} {:>12.0}\n\
             The server has verified the data.\n",
            self.device,
            self.gid.ip(),
            self.peer.ip(),
            self.path_mtu,
            self.depth,
            "bytes",
            "writes",
            "seconds",
            "MiB/s",
            "writes/s",
            self.size,
            self.writes,
            self.seconds,
            self.bytes_per_second / f64::from(1 << 20),
            self.writes_per_second,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce::DeviceInfo;

    #[test]
    fn rates_are_work_by_time() {
        let port = Port {
            device: DeviceInfo {
                name: "fa".to_owned(),
                index: 0,
                netdev: "va".to_owned(),
                ifindex: 1,
                active: true,
                netdev_mtu: 4200,
                path_mtu: 4096,
                gids: Vec::new(),
            },
            gid_index: 1,
            gid: "::ffff:10.0.0.1".parse().unwrap(),
        };
        let work = Work {
            size: 65536,
            depth: 128,
            writes: 3200,
            time: Duration::from_secs(2),
        };
        let report = Report::new(&port, "::ffff:10.0.0.2".parse().unwrap(), 4096, work);
        let text = report.text();
        assert!(text.contains("fa 10.0.0.1 to 10.0.0.2"), "{text}");
        assert!(text.contains("2.000     100.00         1600"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["bytes_per_second"], 104_857_600.0);
        assert_eq!(json["verified"], true);
    }
}
