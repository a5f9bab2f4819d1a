# SPDX-License-Identifier: GPL-2.0
"""One QEMU process with its file servers and the channels to its guest.

Everything lives in the private /tmp and pid namespace of setup/enter, so that
nothing is left behind however the run ends.
"""

import shlex
import socket
import subprocess
import time
from pathlib import Path

import options as opt
import tsc

# Guest channels: the serial console, the command's output, runner messages, and
# the terminal of a shell.
CHANNELS = ("console", "output", "control", "tty")


class RunError(Exception):
    """The run cannot go on; the text says why and what to do."""


class Machine:
    def __init__(self, options, accel, node, out):
        self.options = options
        self.accel = accel
        self.node = node
        self.out = out
        self.dir = Path(f"/tmp/guest{node}")
        self.dir.mkdir(parents=True, exist_ok=True)
        self.listeners = {name: self._listen(name) for name in CHANNELS}
        self.children = []
        self.qemu = None

    def _listen(self, name):
        listener = socket.socket(socket.AF_UNIX)
        path = self.dir / name
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(1)
        return listener

    def start(self, config):
        """Starts everything; the guest finds config and command below /out/.run."""
        self._leave_orders(config)
        self._serve("rootfs", "/", readonly=True)
        self._serve("out", self.out, readonly=False)
        self.qemu = self._spawn("qemu", self._qemu_command())

    def _leave_orders(self, config):
        run = self.out / ".run"
        run.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={shlex.quote(str(value))}\n" for key, value in config.items()]
        (run / "config").write_text("".join(lines))
        (run / "command").write_text(shlex.join(self.options.command) + "\n")

    def accept(self):
        """Yields (name, socket) for each channel, once QEMU has connected to all."""
        for name, listener in self.listeners.items():
            listener.settimeout(10)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise RunError(f"QEMU did not start:\n{self.log('qemu')}") from None
            finally:
                listener.close()
            yield name, connection

    def log(self, name):
        return (self.dir / f"{name}.log").read_text(errors="replace")[-2000:]

    def kill(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
        for child in self.children:
            child.wait()

    def _spawn(self, name, command, **channels):
        log = open(self.dir / f"{name}.log", "wb")
        child = subprocess.Popen(
            command, start_new_session=True,
            **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **channels},
        )
        self.children.append(child)
        return child

    def _serve(self, name, directory, readonly):
        path = self.dir / f"{name}.sock"
        server = self._spawn(f"virtiofsd-{name}", [
            "/usr/libexec/virtiofsd", "--socket-path", path, "--shared-dir", directory,
            "--sandbox", "none", "--seccomp", "none", "--log-level", "error",
            "--cache", "always" if readonly else "auto",
            *(["--readonly"] if readonly else []),
        ])
        deadline = time.monotonic() + 10
        while not path.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RunError(f"virtiofsd did not start:\n{self.log(f'virtiofsd-{name}')}")
            time.sleep(0.01)

    def _qemu_command(self):
        o = self.options
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-machine", "q35,memory-backend=mem", *self._accel(),
            "-cpu", opt.cpu_model(o, self.accel), "-smp", str(o.cpus), "-m", o.memory,
            "-object", f"memory-backend-memfd,id=mem,size={o.memory},share=on",
            "-kernel", self._kernel(), "-append", self._kernel_command_line(),
            "-device", "virtio-serial-pci",
        ]
        for name in CHANNELS:
            command += ["-chardev", f"socket,id={name},path={self.dir / name}"]
        command += ["-serial", "chardev:console"]
        command += ["-device", "virtconsole,chardev=tty"]
        for name in ("output", "control"):
            command += ["-device", f"virtserialport,chardev={name},name=ferroce.{name}"]
        for name in ("rootfs", "out"):
            command += ["-chardev", f"socket,id=fs-{name},path={self.dir / name}.sock"]
            command += ["-device", f"vhost-user-fs-pci,chardev=fs-{name},tag={name}"]
        if o.topology == "two-guests":
            command += self._wire()
        return command

    def _kernel(self):
        debug = self.options.kernel_dir
        return debug / "image" if debug else f"/boot/vmlinuz-{opt.release()}"

    def _accel(self):
        if self.options.icount:
            return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
        return ["-accel", self.accel]

    def _wire(self):
        here, there = f"/tmp/wire{self.node}", f"/tmp/wire{1 - self.node}"
        mac = f"52:54:00:00:00:0{self.node + 1}"
        return [
            "-netdev", f"dgram,id=wire,local.type=unix,local.path={here},"
                       f"remote.type=unix,remote.path={there}",
            "-device", f"virtio-net-pci,netdev=wire,mac={mac},host_mtu=9000,romfile=",
        ]

    def _counter_rate(self):
        """What the guest would find out itself, if the host were idle."""
        if self.accel != "tcg" or self.options.icount:
            return ""
        rate = tsc.khz()
        return f"tsc_early_khz={rate}" if rate else ""

    def _kernel_command_line(self):
        o = self.options
        words = [
            "rootfstype=virtiofs root=rootfs ro", f"init={opt.CLONE}/qemu-test/guest-init",
            "console=ttyS0 loglevel=5 panic=-1",
            # A busy host makes the clock watchdog distrust a good TSC.
            "tsc=nowatchdog", self._counter_rate(),
            "" if o.allow_dmesg else "oops=panic",
            "log_buf_len=4M" if o.kernel_dir else "", o.append,
        ]
        return " ".join(word for word in words if word)
