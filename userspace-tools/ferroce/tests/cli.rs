// SPDX-License-Identifier: GPL-2.0

//! The command as a user meets it, where the module is not loaded.

use std::path::Path;
use std::process::Command;
use std::process::Output;

fn ferroce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn without_the_module_each_command_tells_how_to_load_it() {
    if Path::new(ferroce::abi::DEVICE_PATH).exists() {
        return;
    }
    let commands: [&[&str]; 4] = [
        &["devices"],
        &["devices", "--json"],
        &["perf", "write"],
        &["perf", "write", "::1"],
    ];
    for args in commands {
        let output = ferroce(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stdout(&output).is_empty());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("insmod build/ferroce.ko"),
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for args in [
        ["perf", "write", "--size=0"],
        ["perf", "write", "--depth=9000"],
    ] {
        let output = ferroce(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn man_pages_for_every_command() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    std::fs::create_dir_all(&dir).unwrap();
    assert!(ferroce(&["man", dir.to_str().unwrap()]).status.success());
    for page in [
        "ferroce",
        "ferroce-devices",
        "ferroce-perf",
        "ferroce-perf-write",
    ] {
        let text = std::fs::read_to_string(dir.join(page).with_extension("1")).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
    assert_eq!(ferroce(&["man", "/nonexistent"]).status.code(), Some(1));
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ferroce(&["completions", shell]);
        assert!(output.status.success());
        assert!(stdout(&output).contains("gid-index"), "{shell}");
    }
}
