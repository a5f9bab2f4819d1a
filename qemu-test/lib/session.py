# SPDX-License-Identifier: GPL-2.0
"""One run: the event loop between the guests' channels, the terminal and the clock."""

import os
import selectors
import sys
import termios
import time
import tty

import console
from machine import RunError

BOOT_SECONDS = {"stock": 120, "lockdep": 900, "uml": 60, "uml-kasan": 120}
# How long the second guest may go on after the first one failed.
PEER_GRACE_SECONDS = 30
# How long a guest may take from the end of its command to its last word: with kmemleak all
# memory is searched twice meanwhile.
CLOSING_SECONDS = {"stock": 20, "lockdep": 240, "uml": 20, "uml-kasan": 60}
PANIC_SECONDS = 5

PANICKED = "the guest's kernel panicked"

TIMED_OUT, NOT_RUN, KERNEL_TROUBLE = 124, 125, 126
# The status of the run is then that of the guest that failed first.
LEFT_ALONE = 0


class Guest:
    """What the run knows about one machine."""

    def __init__(self, machine, token, prefix):
        self.machine = machine
        self.prefix = prefix
        self.marker = b"\x1e" + token.encode() + b" "
        self.console = open(machine.out / "console.log", "wb")
        self.output = open(machine.out / "output.log", "wb")
        self.sockets = {}
        self.pending = b""
        self.line_start = True
        self.control = b""
        self.ready = False
        self.status = None
        self.waits_at = None
        self.done = False
        self.deadline = None
        self.failure = None

    @property
    def ended(self):
        return self.done or self.failure is not None

    def console_text(self):
        self.console.flush()
        return (self.machine.out / "console.log").read_text(errors="replace")

    def fail(self, code, text):
        if self.failure is None:
            self.failure = (code, text)

    def give(self, seconds, code, text):
        """Unless it ends by itself within seconds, it fails so."""
        if self.deadline is None:
            self.deadline = (time.monotonic() + seconds, code, text)


class Run:
    def __init__(self, options, machines, token, quiet):
        self.options = options
        self.quiet = quiet
        several = len(machines) > 1
        self.guests = [
            Guest(machine, token, f"[{machine.node}] ".encode() if several else b"")
            for machine in machines
        ]
        self.selector = selectors.DefaultSelector()
        self.saved_terminal = None

    def connect(self):
        for guest in self.guests:
            for name, connection in guest.machine.accept():
                connection.setblocking(False)
                guest.sockets[name] = connection
                self.selector.register(connection, selectors.EVENT_READ, (guest, name))

    def close(self):
        for guest in self.guests:
            guest.console.close()
            guest.output.close()
            for connection in guest.sockets.values():
                connection.close()
        self.selector.close()
        if self.saved_terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, self.saved_terminal)

    def loop(self):
        began = time.monotonic()
        limit = None if self.options.shell else began + self.options.timeout
        boot_limit = began + BOOT_SECONDS[self.options.kernel]
        while not all(guest.ended for guest in self.guests):
            for key, _ in self.selector.select(timeout=0.2):
                self.receive(*key.data)
            now = time.monotonic()
            for guest in self.guests:
                self.watch(guest, now, limit, boot_limit)
            self.watch_peers()
        return self.verdict()

    # ---- what happened -------------------------------------------------

    def receive(self, guest, name):
        if name == "stdin":
            return self.type_in(guest)
        try:
            data = guest.sockets[name].recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self.selector.unregister(guest.sockets[name])
            return None
        return getattr(self, f"on_{name}")(guest, data)

    def on_console(self, guest, data):
        guest.console.write(data)
        if console.panicked(data.decode(errors="replace")):
            guest.give(PANIC_SECONDS, KERNEL_TROUBLE, PANICKED)

    def on_tty(self, guest, data):
        if guest.status is None:
            self.write(data)

    def on_output(self, guest, data):
        """The command's output, up to a marker with its exit status."""
        if guest.status is not None:
            return
        data = guest.pending + data
        text, marker, rest = data.partition(guest.marker)
        if marker and b"\n" in rest:
            guest.pending = b""
            guest.status = int(rest.split(b"\n")[0])
            guest.give(CLOSING_SECONDS[self.options.kernel], NOT_RUN, "the guest hangs after the end of its command")
        else:
            # Hold back what may be the beginning of the marker.
            cut = data.find(b"\x1e")
            text = data if cut < 0 else data[:cut]
            guest.pending = b"" if cut < 0 else data[cut:]
            if len(guest.pending) > 64:
                text, guest.pending = data, b""
        guest.output.write(text)
        guest.output.flush()
        if not self.options.shell:
            self.show(guest, text)

    def on_control(self, guest, data):
        guest.control += data
        while b"\n" in guest.control:
            line, _, guest.control = guest.control.partition(b"\n")
            words = line.decode(errors="replace").split()
            if words[:1] == ["ready"]:
                guest.ready = True
                if self.options.shell:
                    self.open_terminal(guest)
            elif words[:1] == ["done"]:
                guest.done = True
            elif words[:1] == ["barrier"] and len(words) == 2:
                guest.waits_at = words[1]
        self.release_barrier()

    def release_barrier(self):
        waiting = [guest for guest in self.guests if guest.waits_at]
        gone = [guest for guest in self.guests if guest.status is not None or guest.ended]
        if len(waiting) == len(self.guests) and len({g.waits_at for g in waiting}) == 1:
            answer = "go"
        elif waiting and (gone or len(waiting) == len(self.guests)):
            answer = "gone"
        else:
            return
        for guest in waiting:
            guest.sockets["control"].sendall(f"{answer} {guest.waits_at}\n".encode())
            guest.waits_at = None

    def watch(self, guest, now, limit, boot_limit):
        """Ends a guest that is dead or late."""
        if guest.ended:
            return
        if guest.machine.qemu.poll() is not None and self.drained(guest):
            self.explain_death(guest)
        elif not guest.ready and now > boot_limit:
            guest.fail(NOT_RUN, f"the guest did not boot within {BOOT_SECONDS[self.options.kernel]} s")
        elif limit and now > limit:
            guest.fail(TIMED_OUT, f"not finished after {self.options.timeout} s (--timeout)")
        elif guest.deadline and now > guest.deadline[0]:
            guest.fail(*guest.deadline[1:])

    def watch_peers(self):
        """When one guest has failed, the other may wait for it in vain."""
        if any(guest.failure or guest.status for guest in self.guests):
            for guest in self.guests:
                if guest.status is None:
                    guest.give(PEER_GRACE_SECONDS, LEFT_ALONE,
                               f"ended {PEER_GRACE_SECONDS} s after the other guest failed")
        self.release_barrier()

    def drained(self, guest):
        registered = {key.fileobj for key in self.selector.get_map().values()}
        return not any(s in registered for n, s in guest.sockets.items() if n != "tty")

    def explain_death(self, guest):
        if console.panicked(guest.console_text()):
            guest.fail(KERNEL_TROUBLE, PANICKED)
        elif guest.machine.qemu.returncode:
            guest.fail(NOT_RUN, f"QEMU failed: {guest.machine.log('qemu').strip()}")
        else:
            guest.fail(NOT_RUN, "the guest powered off before its command ended")

    def verdict(self):
        status = 0
        for guest in self.guests:
            if guest.failure:
                code, text = guest.failure
                self.complain(guest, text, guest.console_text())
            elif not self.options.allow_dmesg and (lines := self.kernel_trouble(guest)):
                code = guest.status or KERNEL_TROUBLE
                self.complain(guest, "the kernel complained:\n  " + "\n  ".join(lines[:12]))
            else:
                code = guest.status
            status = status or code
        return status

    def kernel_trouble(self, guest):
        try:
            return console.trouble((guest.machine.out / "dmesg.log").read_text(errors="replace"))
        except FileNotFoundError:
            raise RunError("the guest left no dmesg.log") from None

    def complain(self, guest, text, log=None):
        if self.quiet:
            return
        name = f"guest {guest.machine.node}" if guest.prefix else "guest"
        print(f"{name}: {text}", file=sys.stderr)
        if log:
            print(f"---- end of its console ----\n{console.tail(log)}\n----", file=sys.stderr)
        print(f"{name}: logs are in {guest.machine.out}", file=sys.stderr, flush=True)

    # ---- terminal --------------------------------------------------------

    def show(self, guest, data):
        if self.quiet or not data:
            return
        if guest.prefix:
            lead = guest.prefix if guest.line_start else b""
            guest.line_start = data.endswith(b"\n")
            body = data[:-1] if guest.line_start else data
            data = lead + body.replace(b"\n", b"\n" + guest.prefix)
            data += b"\n" if guest.line_start else b""
        self.write(data)

    def write(self, data):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def open_terminal(self, guest):
        if sys.stdin.isatty():
            self.saved_terminal = termios.tcgetattr(0)
            tty.setraw(0)
        self.selector.register(0, selectors.EVENT_READ, (guest, "stdin"))

    def type_in(self, guest):
        data = os.read(0, 4096)
        if not data:
            self.selector.unregister(0)
            data = b"\x04"
        guest.sockets["tty"].sendall(data)
