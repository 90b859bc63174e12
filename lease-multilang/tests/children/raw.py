"""Speaks the MultiLang protocol without a library, records its input, and injects one fault on request.

FAULT names the fault. FAULT_SHARD is the suffix of the shard's id. The child that injects the fault creates
FAULT_FILE, so that no other child injects it again.
"""
import base64
import fcntl
import json
import os
import select
import struct
import sys
import termios
import time

NOTES = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
OUT = sys.stdout.buffer
shard = "?"
batches = 0
last = None
# Behaves as a child of the second generation: it requests checkpoints after its status message, and
# answers each kind of end with `shutdown`.
OLD = "OLD" in os.environ
# Behaves as a child of the first generation: `shutdown` is its only end, and a checkpoint has no
# subsequence number.
FIRST = "FIRST" in os.environ
# Requests a checkpoint only when the daemon stops it.
LATE = "LATE" in os.environ
# A sequence number that is larger than that of every record.
TOO_MUCH = "9" * 56


def note(*words):
    line = "\t".join([str(os.getpid()), words[0], shard, *map(str, words[1:])])
    os.write(NOTES, (line + "\n").encode())


def send(**message):
    OUT.write(("\n" + json.dumps(message) + "\n").encode())
    OUT.flush()


def request_checkpoint(sequence=None, sub=None):
    if FIRST:
        send(action="checkpoint", checkpoint=sequence)
    else:
        send(action="checkpoint", sequenceNumber=sequence, subSequenceNumber=sub)


def checkpoint(sequence=None, sub=None):
    request_checkpoint(sequence, sub)
    note_reply(json.loads(sys.stdin.readline()))


def note_reply(reply):
    note("checkpoint" if reply["error"] is None else "refused", reply["error"])


def has_fault(name):
    if os.environ.get("FAULT") != name or not shard.endswith(os.environ["FAULT_SHARD"]):
        return False
    try:
        os.close(os.open(os.environ["FAULT_FILE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    note("fault", name)
    return True


def fault_before_status():
    """Runs before the status message of a batch."""
    if has_fault("floods stderr"):
        for _ in range(200):
            os.write(2, b"x" * 65535 + b"\n" + b"y\n" * 2000)
    if has_fault("hangs"):
        time.sleep(600)
    if has_fault("dies in a line"):
        OUT.write(b'\n{"action":"stat')
        OUT.flush()
        os._exit(3)
    if has_fault("closes stdout"):
        os.close(1)
        time.sleep(600)
    if has_fault("writes a long line"):
        for _ in range(200):
            OUT.write(b"x" * 65536)
        OUT.write(b"\n")
    if has_fault("is not utf-8"):
        OUT.write(b"\xff\xfe\n")
    if has_fault("is not json"):
        for number in range(100):
            OUT.write(b"print number %d\n" % number)
        send(action="bogus")
        send(action="status", responseFor="processRecords", more=1)
    if has_fault("answers wrongly"):
        send(action="status", responseFor="initialize")
        time.sleep(600)
    if has_fault("starts another"):
        os.system("sleep 600 & echo $! > " + os.environ["FAULT_FILE"])
        os._exit(4)
    if has_fault("requests without end"):
        request_without_end()
    if has_fault("reads no reply"):
        request_more_than_stdin_holds()
    if has_fault("requests invalid checkpoints"):
        for _ in range(100):
            checkpoint(TOO_MUCH)


def fault_after_status():
    """Runs after the status message of a batch."""
    if has_fault("requests without end afterwards"):
        request_without_end()
    if has_fault("reads no reply afterwards"):
        request_more_than_stdin_holds()
    if has_fault("requests late"):
        # The next batch does not fit into the pipe to this process. The output below does not fit into
        # the pipe to the daemon. So when the output is written, the daemon has read the request.
        select.select([sys.stdin], [], [])
        request_checkpoint()
        OUT.write((b"x" * 1023 + b"\n") * 256)
        OUT.flush()
        sys.stdin.readline()
        note_reply(json.loads(sys.stdin.readline()))
        os._exit(5)


def request_without_end():
    while True:
        request_checkpoint(TOO_MUCH)


def request_more_than_stdin_holds():
    reply = {"sequenceNumber": TOO_MUCH, "subSequenceNumber": None}
    reply = {"action": "checkpoint", **reply, "error": "IllegalArgumentException"}
    reply = json.dumps(reply, separators=(",", ":")) + "\n"
    size, page = fcntl.fcntl(0, fcntl.F_GETPIPE_SZ), os.sysconf("SC_PAGE_SIZE")
    # A page of a pipe holds only whole replies. Replies that are written together waste more space. So this
    # loop waits for each reply until the free space is at most one page of replies.
    nearly_full = size - size // page * len(reply) - page
    while unread() < nearly_full:
        before = unread()
        request_checkpoint(TOO_MUCH)
        while unread() == before:
            time.sleep(0.001)
    # More replies than fit, and fewer than the daemon's limit of unread replies.
    for _ in range((size - nearly_full) // len(reply) + 4):
        request_checkpoint(TOO_MUCH)
    note("full")
    time.sleep(600)


def unread():
    """Returns the number of bytes in the pipe to this process."""
    return struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, struct.pack("i", 0)))[0]


for line in sys.stdin:
    message = json.loads(line)
    action = message["action"]
    if FIRST and action in ("shutdownRequested", "leaseLost", "shardEnded"):
        note("unknown", action)
        sys.exit(6)
    if action == "initialize":
        shard = message["shardId"]
        note("begun", message["sequenceNumber"])
    elif action == "processRecords":
        fault_before_status()
        for record in message["records"]:
            data = base64.b64decode(record["data"]).decode()
            note("record", record["sequenceNumber"], record["partitionKey"], data)
            last = record["sequenceNumber"]
        batches += 1
        if batches % 2 and not OLD and not LATE:
            checkpoint(last)
    elif action == "checkpoint":
        note_reply(message)
        continue
    elif action == "shutdownRequested":
        checkpoint()
        note("requested")
    elif action == "shardEnded":
        # The last record of a shard is its end.
        checkpoint(last if OLD else None)
        note("ended")
    elif action == "leaseLost":
        note("lost")
    elif action == "shutdown" and message["reason"] == "TERMINATE":
        checkpoint()
        note("ended")
    elif action == "shutdown":
        note("lost")
    ends = action in ("shutdownRequested", "leaseLost", "shardEnded")
    send(action="status", responseFor="shutdown" if OLD and ends else action)
    if action == "processRecords":
        fault_after_status()
    if OLD and action == "processRecords":
        send(action="checkpoint", sequenceNumber=last)
note("gone")
