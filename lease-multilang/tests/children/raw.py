"""Speaks the MultiLang protocol by hand, notes what it is given, and misbehaves once if asked to.

TROUBLE says how, for the shard that ends in TROUBLED; TROUBLE_FILE is made at the first time.
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
# As a child of the first years: asks for checkpoints when it has answered, and says `shutdown` to
# every end.
OLD = "OLD" in os.environ
# As a child of the first generation: knows no ends but `shutdown`, and tells one number.
FIRST = "FIRST" in os.environ
# Beyond every record.
TOO_MUCH = "9" * 56


def note(*words):
    line = "\t".join([str(os.getpid()), words[0], shard, *map(str, words[1:])])
    os.write(NOTES, (line + "\n").encode())


def say(**message):
    OUT.write(("\n" + json.dumps(message) + "\n").encode())
    OUT.flush()


def ask(sequence=None, sub=None):
    if FIRST:
        say(action="checkpoint", checkpoint=sequence)
    else:
        say(action="checkpoint", sequenceNumber=sequence, subSequenceNumber=sub)


def checkpoint(sequence=None, sub=None):
    ask(sequence, sub)
    replied(json.loads(sys.stdin.readline()))


def replied(reply):
    note("checkpoint" if reply["error"] is None else "refused", reply["error"])


def trouble(of):
    if os.environ.get("TROUBLE") != of or not shard.endswith(os.environ["TROUBLED"]):
        return False
    try:
        os.close(os.open(os.environ["TROUBLE_FILE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    note("trouble", of)
    return True


def misbehave():
    """Before the answer to a batch."""
    if trouble("floods stderr"):
        for _ in range(200):
            os.write(2, b"x" * 65535 + b"\n" + b"y\n" * 2000)
    if trouble("hangs"):
        time.sleep(600)
    if trouble("dies in a line"):
        OUT.write(b'\n{"action":"stat')
        OUT.flush()
        os._exit(3)
    if trouble("closes stdout"):
        os.close(1)
        time.sleep(600)
    if trouble("writes a long line"):
        for _ in range(200):
            OUT.write(b"x" * 65536)
        OUT.write(b"\n")
    if trouble("is not utf-8"):
        OUT.write(b"\xff\xfe\n")
    if trouble("is not json"):
        for number in range(100):
            OUT.write(b"print number %d\n" % number)
        say(action="bogus")
        say(action="status", responseFor="processRecords", more=1)
    if trouble("answers wrongly"):
        say(action="status", responseFor="initialize")
        time.sleep(600)
    if trouble("starts another"):
        os.system("sleep 600 & echo $! > " + os.environ["TROUBLE_FILE"])
        os._exit(4)
    if trouble("asks on and on"):
        ask_on_and_on()
    if trouble("reads no reply"):
        ask_more_than_stdin_holds()
    if trouble("asks for too much"):
        for _ in range(100):
            checkpoint(TOO_MUCH)


def misbehave_later():
    """After the answer to a batch."""
    if trouble("asks on and on afterwards"):
        ask_on_and_on()
    if trouble("reads no reply afterwards"):
        ask_more_than_stdin_holds()
    if trouble("asks late"):
        # The next batch is on its way, and does not fit into the pipe. What is printed does not
        # either: so all that was said before it has been heard when this is done.
        select.select([sys.stdin], [], [])
        ask()
        OUT.write((b"x" * 1023 + b"\n") * 256)
        OUT.flush()
        sys.stdin.readline()
        replied(json.loads(sys.stdin.readline()))
        os._exit(5)


def ask_on_and_on():
    while True:
        ask(TOO_MUCH)


def ask_more_than_stdin_holds():
    reply = {"sequenceNumber": TOO_MUCH, "subSequenceNumber": None}
    reply = {"action": "checkpoint", **reply, "error": "IllegalArgumentException"}
    reply = json.dumps(reply, separators=(",", ":")) + "\n"
    size, page = fcntl.fcntl(0, fcntl.F_GETPIPE_SZ), os.sysconf("SC_PAGE_SIZE")
    # Each page of a pipe has room for whole replies only. Replies that are written together leave more
    # room unused, so each is waited for, until there is room for a page of replies at most.
    nearly_full = size - size // page * len(reply) - page
    while unread() < nearly_full:
        before = unread()
        ask(TOO_MUCH)
        while unread() == before:
            time.sleep(0.001)
    # More than there is room for, and fewer than the daemon lets a child be ahead.
    for _ in range((size - nearly_full) // len(reply) + 4):
        ask(TOO_MUCH)
    note("full")
    time.sleep(600)


def unread():
    """Bytes in the pipe to this process."""
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
        misbehave()
        for record in message["records"]:
            data = base64.b64decode(record["data"]).decode()
            note("record", record["sequenceNumber"], record["partitionKey"], data)
            last = record["sequenceNumber"]
        batches += 1
        if batches % 2 and not OLD:
            checkpoint(last)
    elif action == "checkpoint":
        replied(message)
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
    say(action="status", responseFor="shutdown" if OLD and ends else action)
    if action == "processRecords":
        misbehave_later()
    if OLD and action == "processRecords":
        say(action="checkpoint", sequenceNumber=last)
note("gone")
