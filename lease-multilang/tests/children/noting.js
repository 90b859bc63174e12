// A record processor on aws-kcl that records its calls.
'use strict';

const fs = require('fs');
const kcl = require('aws-kcl');

let shard = '?';
let batches = 0;

function note(...words) {
  const line = [process.pid, words[0], shard, ...words.slice(1)].join('\t');
  fs.appendFileSync(process.env.NOTES, line + '\n');
}

kcl({
  initialize(input, done) {
    shard = input.shardId;
    note('begun', input.sequenceNumber);
    done();
  },

  processRecords(input, done) {
    for (const record of input.records) {
      const data = Buffer.from(record.data, 'base64').toString();
      note('record', record.sequenceNumber, record.partitionKey, data);
    }
    batches += 1;
    if (batches % 2 === 0 || input.records.length === 0) {
      return done();
    }
    const last = input.records[input.records.length - 1].sequenceNumber;
    input.checkpointer.checkpoint(last, () => done());
  },

  leaseLost(input, done) {
    note('lost');
    done();
  },

  shardEnded(input, done) {
    input.checkpointer.checkpoint(() => {
      note('ended');
      done();
    });
  },

  shutdownRequested(input, done) {
    input.checkpointer.checkpoint(() => {
      note('requested');
      done();
    });
  },
}).run();
