# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the set-up scripts share: messages, cache paths, locks, namespaces.
# Sourced, never run.

SETUP_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
FERROCE_DIR=$(cd "$SETUP_DIR/../.." && pwd -P)
FERROCE_CACHE=$(realpath -m "${FERROCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferroce}")
KERNEL_SERIES=7.3
KERNEL_CC=x86_64-linux-gnu-gcc-14
export FERROCE_DIR FERROCE_CACHE KERNEL_SERIES KERNEL_CC

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
	printf 'setup: error: %s\n' "$*" >&2
	exit 1
}

# Kbuild splits paths at blanks, and a list of directories is split at colons.
case $FERROCE_DIR$FERROCE_CACHE in
*[[:space:]:]*) die "the clone and FERROCE_CACHE need paths without blanks and colons; these are $FERROCE_DIR and $FERROCE_CACHE" ;;
esac

# True inside the Debian root, whether entered by chroot or booted in a guest.
inside_root() { [ -e /etc/ferroce-root ]; }

# The key names everything that decides what the root contains.
root_key() {
	{
		cat "$SETUP_DIR/packages" "$SETUP_DIR/populate"
		echo "${KERNEL_VERSION:-newest}"
	} | sha256sum | cut -c1-12
}

root_path() { echo "$FERROCE_CACHE/root-$(root_key)"; }

# The kernel release that the root was made with, for example 7.3.4+deb13-amd64.
kernel_release() {
	if inside_root; then
		cat /etc/ferroce-root
	else
		cat "$(root_path)/etc/ferroce-root"
	fi
}

kernel_path() { echo "$FERROCE_CACHE/kernel-$(kernel_release)-$(root_key)"; }

make_cache() {
	mkdir -p "$FERROCE_CACHE/logs" "$FERROCE_CACHE/cargo" 2>/dev/null ||
		die "cannot create $FERROCE_CACHE; set FERROCE_CACHE to a directory you may write to"
	[ -w "$FERROCE_CACHE" ] ||
		die "cannot write to $FERROCE_CACHE; set FERROCE_CACHE to a directory you may write to"
}

# lock NAME: holds $FERROCE_CACHE/NAME.lock on descriptor 9 until the script ends.
lock() {
	exec 9>"$FERROCE_CACHE/$1.lock"
	flock -n 9 && return
	say "another run holds the $1 lock, waiting for it"
	flock -w 1800 9 || die "the $1 lock was not released within 30 minutes"
}

need_space() {
	local want_mb=$1 have_mb
	have_mb=$(df --output=avail -BM "$FERROCE_CACHE" | tail -1 | tr -dc 0-9)
	[ "$have_mb" -ge "$want_mb" ] ||
		die "$want_mb MB are needed in $FERROCE_CACHE but only $have_mb MB are free; make room or set FERROCE_CACHE to another disk"
}

# as_root CMD…: as root of the machine, or else as root of a user namespace that
# has the caller's subordinate ids. Whatever CMD mounts or leaves running ends
# with it, and it ends with the caller.
as_root() {
	local namespaces=(--mount --propagation private --pid --fork --kill-child --mount-proc)
	[ "$(id -u)" = 0 ] || namespaces+=(--user --map-root-user --map-auto)
	setpriv --pdeathsig KILL unshare "${namespaces[@]}" -- "$@"
}

# Says what a caller without root rights lacks for as_root, if anything.
check_rights() {
	[ "$(id -u)" = 0 ] && return
	command -v newuidmap >/dev/null ||
		die "not root, and newuidmap is missing; run as root, or once: sudo apt-get install uidmap mmdebstrap"
	grep -q "^\($(id -un)\|$(id -u)\):" /etc/subuid 2>/dev/null ||
		die "not root, and $(id -un) has no subordinate ids; run as root, or once: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
	as_root true 2>/dev/null ||
		die "not root, and this kernel allows no user namespace; run as root, or once: sudo sysctl kernel.unprivileged_userns_clone=1"
}

# What an interrupted script must end and remove.
step_pid=
partial=

clean_up() {
	[ -z "$step_pid" ] || { kill "$step_pid" && wait "$step_pid"; } 2>/dev/null || true
	[ -z "$partial" ] || remove "$partial"
}

# Tries again, as a step that was just ended may still be writing.
remove() {
	local try
	for try in 1 2 3 4 5; do
		[ -e "$1" ] || return 0
		as_root rm -rf --one-file-system "$1" 2>/dev/null && return
		sleep "$try"
	done
	die "cannot remove $1"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# step LABEL LOG CMD…: runs CMD with its output in LOG, and a sign of life on
# stderr every ten seconds.
step() {
	local label=$1 log=$2 began=$SECONDS rc=0 ticks=0
	shift 2
	say "$label …"
	"$@" >"$log" 2>&1 </dev/null &
	step_pid=$!
	while kill -0 "$step_pid" 2>/dev/null; do
		sleep 0.5
		ticks=$((ticks + 1))
		[ $((ticks % 20)) -ne 0 ] ||
			say "  $((SECONDS - began)) s: $(grep -v '^\s*$' "$log" | tail -n 1 | cut -c1-100)"
	done
	wait "$step_pid" || rc=$?
	step_pid=
	if [ "$rc" = 0 ]; then
		say "$label: done in $((SECONDS - began)) s"
	else
		tail -n 25 "$log" >&2
		say "$label failed (exit $rc); the whole log is $log"
	fi
	return "$rc"
}

# explain LOG WHAT: ends the script with the reason that LOG shows for a failure.
explain() {
	if grep -qE 'Could not resolve|Temporary failure|Unable to connect|Could not connect|Network is unreachable' "$1"; then
		die "the Debian archive cannot be reached: check the network and http_proxy, or set FERROCE_MIRROR"
	elif grep -q 'No space left' "$1"; then
		die "the disk is full: make room, or set FERROCE_CACHE to another disk"
	elif grep -q 'NO_PUBKEY' "$1"; then
		die "the archive's signature is unknown here: update the package debian-archive-keyring"
	elif grep -q '^E: no kernel' "$1"; then
		die "$(grep '^E: no kernel' "$1" | cut -c4-) see the list above, and set or unset KERNEL_VERSION"
	fi
	die "$2"
}
