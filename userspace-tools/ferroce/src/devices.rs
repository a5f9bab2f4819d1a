// SPDX-License-Identifier: GPL-2.0

//! `ferroce devices`

use ferroce::Context;
use ferroce::DeviceInfo;
use std::io;
use std::io::Write;

pub fn run(json: bool) -> anyhow::Result<()> {
    let devices = Context::open()?.devices()?;
    let text = if json {
        serde_json::to_string_pretty(&devices)? + "\n"
    } else if devices.is_empty() {
        "no ferroce devices; make one with: rdma link add NAME type ferroce netdev DEV\n".to_owned()
    } else {
        devices.iter().map(describe).collect()
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn describe(device: &DeviceInfo) -> String {
    let state = if device.active { "active" } else { "down" };
    let mut text = format!(
        "{}: index {}, netdev {} ({}), {state}, MTU {}, path MTU {}\n",
        device.name,
        device.index,
        if device.netdev.is_empty() {
            "gone"
        } else {
            &device.netdev
        },
        device.ifindex,
        device.netdev_mtu,
        device.path_mtu,
    );
    for entry in &device.gids {
        text += &format!("    GID {:<3} {}\n", entry.index, entry.gid);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce::GidEntry;

    #[test]
    fn a_device_is_a_line_and_a_line_for_each_gid() {
        let device = DeviceInfo {
            name: "fa".to_owned(),
            index: 2,
            netdev: "va".to_owned(),
            ifindex: 3,
            active: true,
            netdev_mtu: 4200,
            path_mtu: 4096,
            gids: vec![GidEntry {
                index: 1,
                gid: "::ffff:10.0.0.1".parse().unwrap(),
            }],
        };
        assert_eq!(
            describe(&device),
            "fa: index 2, netdev va (3), active, MTU 4200, path MTU 4096\n    \
             GID 1   ::ffff:10.0.0.1\n"
        );
    }
}
