"""Speaks the MultiLang protocol by hand, notes what it is given, and misbehaves once if asked to.

TROUBLE says how, for the shard that ends in TROUBLED; TROUBLE_FILE is made at the first time.
"""
import base64
import json
import os
import sys
import time

NOTES = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
OUT = sys.stdout.buffer
shard = "?"
batches = 0
last = None
# As a child of the first years: asks for checkpoints when it has answered, and says `shutdown` to
# every end.
OLD = "OLD" in os.environ


def note(*words):
    line = "\t".join([str(os.getpid()), words[0], shard, *map(str, words[1:])])
    os.write(NOTES, (line + "\n").encode())


def say(**message):
    OUT.write(("\n" + json.dumps(message) + "\n").encode())
    OUT.flush()


def checkpoint(sequence=None, sub=None):
    say(action="checkpoint", sequenceNumber=sequence, subSequenceNumber=sub)
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


for line in sys.stdin:
    message = json.loads(line)
    action = message["action"]
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
    ends = action in ("shutdownRequested", "leaseLost", "shardEnded")
    say(action="status", responseFor="shutdown" if OLD and ends else action)
    if OLD and action == "processRecords":
        say(action="checkpoint", sequenceNumber=last)
note("gone")
