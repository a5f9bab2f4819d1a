# SPDX-License-Identifier: GPL-2.0
"""librdmacm by ctypes: as much as the tests of connection events need.

pyverbs has no private data, which is half of what a rejection says.
"""

import ctypes as c
import os
import socket
import struct

PS_TCP = 0x106
QPT_RC = 2
EVENTS = """addr_resolved addr_error route_resolved route_error connect_request
connect_response connect_error unreachable rejected established disconnected
device_removal multicast_join multicast_error addr_change timewait_exit""".split()


class ConnParam(c.Structure):
    """struct rdma_conn_param."""

    _fields_ = [
        ("private_data", c.c_void_p),
        *[(name, c.c_uint8) for name in (
            "private_data_len", "responder_resources", "initiator_depth", "flow_control",
            "retry_count", "rnr_retry_count", "srq")],
        ("qp_num", c.c_uint32),
    ]


class CmEvent(c.Structure):
    """struct rdma_cm_event, with the connected half of its union."""

    _fields_ = [
        ("id", c.c_void_p), ("listen_id", c.c_void_p), ("event", c.c_int),
        ("status", c.c_int), ("conn", ConnParam),
    ]


class QpInit(c.Structure):
    """struct ibv_qp_init_attr."""

    _fields_ = [
        *[(name, c.c_void_p) for name in ("qp_context", "send_cq", "recv_cq", "srq")],
        ("cap", c.c_uint32 * 5), ("qp_type", c.c_int), ("sq_sig_all", c.c_int),
    ]


_lib = c.CDLL("librdmacm.so.1", use_errno=True)
_lib.rdma_create_event_channel.restype = c.c_void_p


def _call(name, *arguments):
    """A call that answers 0, or an OSError."""
    if getattr(_lib, name)(*arguments):
        error = c.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _sockaddr(address, port):
    """A struct sockaddr of either family."""
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address)
        raw = struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + packed + bytes(4)
    else:
        packed = socket.inet_aton(address)
        raw = struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + packed + bytes(8)
    return c.create_string_buffer(raw, len(raw))


def _param(data):
    param = ConnParam(responder_resources=1, initiator_depth=1, retry_count=7, rnr_retry_count=7)
    keep = c.create_string_buffer(data, len(data))
    param.private_data = c.cast(keep, c.c_void_p)
    param.private_data_len = len(data)
    return param, keep


class Channel:
    """An event channel and the identifiers on it (plain integers)."""

    def __init__(self):
        self._channel = c.c_void_p(_lib.rdma_create_event_channel())
        if not self._channel:
            raise OSError(c.get_errno(), "no event channel: is rdma_ucm loaded?")

    def event(self):
        """The next event: its name, its identifier, its status, its private data."""
        event = c.POINTER(CmEvent)()
        _call("rdma_get_cm_event", self._channel, c.byref(event))
        told = event.contents
        data = b""
        if told.conn.private_data:
            data = c.string_at(told.conn.private_data, told.conn.private_data_len)
        answer = EVENTS[told.event], told.id, told.status, data
        _call("rdma_ack_cm_event", event)
        return answer

    def expect(self, name):
        """The next event, which must be of that name."""
        got = self.event()
        if got[0] != name:
            raise AssertionError(f"event {got[0]} with status {got[2]}, expected {name}")
        return got

    def create(self):
        """A new identifier."""
        made = c.c_void_p()
        _call("rdma_create_id", self._channel, c.byref(made), None, PS_TCP)
        return made.value

    def listen(self, address, port, backlog=128):
        """An identifier that listens there."""
        made = self.create()
        _call("rdma_bind_addr", c.c_void_p(made), _sockaddr(address, port))
        _call("rdma_listen", c.c_void_p(made), backlog)
        return made

    def start(self, address, port):
        """An identifier on its way there: addr_resolved comes next."""
        made = self.create()
        _call("rdma_resolve_addr", c.c_void_p(made), None, _sockaddr(address, port), 5000)
        return made


def resolve_route(ident):
    """Asks for the route: route_resolved comes next."""
    _call("rdma_resolve_route", c.c_void_p(ident), 5000)


def make_qp(ident):
    """A small RC queue pair with queues of its own."""
    init = QpInit(cap=(c.c_uint32 * 5)(1, 1, 1, 1, 0), qp_type=QPT_RC)
    _call("rdma_create_qp", c.c_void_p(ident), None, c.byref(init))


def connect(ident, data=b""):
    """Sends the request with that private data."""
    param, _keep = _param(data)
    _call("rdma_connect", c.c_void_p(ident), c.byref(param))


def accept(ident, data=b""):
    """Makes the queue pair and accepts, with that private data."""
    make_qp(ident)
    param, _keep = _param(data)
    _call("rdma_accept", c.c_void_p(ident), c.byref(param))


def reject(ident, data):
    """Rejects, with that private data."""
    _call("rdma_reject", c.c_void_p(ident), data, c.c_uint8(len(data)))


def disconnect(ident):
    """Ends the connection."""
    _call("rdma_disconnect", c.c_void_p(ident))


def destroy(ident):
    """Frees the identifier and its queue pair."""
    _lib.rdma_destroy_qp(c.c_void_p(ident))
    _call("rdma_destroy_id", c.c_void_p(ident))
