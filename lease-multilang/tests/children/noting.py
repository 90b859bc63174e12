"""A record processor on amazon_kclpy that records its calls."""
import os

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

NOTES = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Noting(processor.RecordProcessorBase):
    def note(self, *words):
        line = "\t".join([str(os.getpid()), words[0], self.shard, *map(str, words[1:])])
        os.write(NOTES, (line + "\n").encode())

    def initialize(self, initialize_input):
        self.shard = initialize_input.shard_id
        self.batches = 0
        self.note("begun", initialize_input.sequence_number)

    def process_records(self, process_records_input):
        for record in process_records_input.records:
            data = record.binary_data.decode()
            self.note("record", record.sequence_number, record.partition_key, data)
        self.batches += 1
        if self.batches % 2:
            process_records_input.checkpointer.checkpoint()

    def lease_lost(self, lease_lost_input):
        self.note("lost")

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()
        self.note("ended")

    def shutdown_requested(self, shutdown_requested_input):
        shutdown_requested_input.checkpointer.checkpoint()
        self.note("requested")


if __name__ == "__main__":
    kcl.KCLProcess(Noting()).run()
