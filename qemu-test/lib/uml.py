# SPDX-License-Identifier: GPL-2.0
"""User-mode Linux in the place of a QEMU: a kernel that is a process of this host.

It sees the files of the root by hostfs. The channels to its guest are the same as
those of a Machine, on its console and serial lines.
"""

import os
import signal
import socket

import options as opt
from machine import CHANNELS
from machine import Machine
from machine import RunError


class UmlMachine(Machine):
    """One process of the image `linux`, and those that it makes."""

    def start(self, config):
        """Starts it; the guest finds config and command below /out/.run."""
        self._leave_orders(config)
        self.ends = {}
        for name in CHANNELS:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(self.dir / name))
            self.ends[name] = client
        # as large as the kernel's is by default; read when a line is set up
        os.environ["TMPDIR"] = "/dev/shm"
        self.qemu = self._spawn(
            "qemu", self._uml_command(), stdout=self.ends["console"], stderr=self.ends["console"],
            pass_fds=[end.fileno() for end in self.ends.values()],
        )
        for end in self.ends.values():
            end.close()

    def kill(self):
        """Ends the kernel and the processes in which its programs run."""
        if self.qemu and self.qemu.poll() is None:
            os.killpg(self.qemu.pid, signal.SIGKILL)
        super().kill()

    def _uml_command(self):
        o = self.options
        line = {name: f"fd:{end.fileno()},fd:{end.fileno()}" for name, end in self.ends.items()}
        checked = o.kernel == "uml-kasan"
        return [
            o.kernel_dir / "image", f"mem={o.memory}", f"uml_dir={self.dir}", f"umid=guest{self.node}",
            "rootfstype=hostfs", "root=/dev/root", "rootflags=/", "ro",
            f"init={opt.CLONE}/qemu-test/guest-init", f"ferroce_out={self.out}",
            "con=null", "ssl=null", f"con0={line['console']}",
            f"ssl0={line['output']}", f"ssl1={line['control']}", f"ssl2={line['tty']}",
            "console=tty0", "loglevel=5", "panic=-1", "log_buf_len=4M",
            "" if o.allow_dmesg else "oops=panic",
            # With checks its first program crashes in the faster mode.
            "seccomp=off" if checked else "seccomp=on",
            f"ncpus={1 if checked else min(o.cpus, 2)}",
            *o.append.split(),
        ]


def refuse(options):
    """What a kernel without devices cannot do."""
    if options.topology == "two-guests":
        raise RunError("User-mode Linux has no wire to a second guest; use --topology pair")
    if options.icount:
        raise RunError("User-mode Linux has no clock that counts instructions")
