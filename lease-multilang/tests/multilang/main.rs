//! The MultiLang protocol: its messages, its lines, and a child of this library under a daemon.
//!
//! Requirements (S5-…) and faults (f…) of earlier systems, with the tests that cover them:
//!
//! | requirement or fault | test |
//! |---|---|
//! | S5-1, S5-2: the order of sequence numbers | in `position.rs`: `positions_order_from_times_to_shard_end` |
//! | S5-7: an error in a reply is raised by its name | `refused_checkpoint_has_its_name_and_session_continues` |
//! | S5-8, f4: an unexpected reply | `message_out_of_turn_ends_the_session` |
//! | S5-9, f5: a processor fails | `failed_batch_is_retried_before_its_status`, `batch_that_keeps_failing_ends_child_without_status` |
//! | S5-10: an unknown action | `invalid_lines_are_errors_and_blank_lines_are_not` |
//! | S5-11, f1, f3: a whole session | `third_generation_session_with_a_throttled_checkpoint` |
//! | S5-12: a checkpoint after the loss of the lease | `checkpoint_after_lease_loss_is_refused` |
//! | S5-12, S5-13: both kinds of end | `second_generation_ends_by_each_shutdown_reason` |
//! | S5-18: blank and bogus lines | `daemon_reports_why_a_line_is_not_a_message` |
//! | S5-19: the end of a pipe | `closed_pipe_is_an_error_only_within_an_action` |
//! | S5-21, f10: nulls, and a last line without an end | `records_survive_encoding_byte_for_byte`, `end_within_a_line_differs_from_end_after_a_line`; by a child: `missing_fields_of_a_message_are_none_and_not_zero`, `last_line_without_line_feed_is_read_if_complete` |
//! | f2: a child continues after `shutdownRequested` | `third_generation_child_stays_until_lease_lost` |
//! | f6: all generations | `first_generation_uses_its_own_messages`, and the tests of the other generations |
//! | f7: a checkpoint request between actions | `checkpoint_between_actions_is_requested_once_by_number` |
//! | f8: endless retries | `throttled_checkpoint_is_retried_a_few_times` |
//! | f9: two writers | `message_is_one_write_with_line_feeds` |
//!
//! S5-3 to S5-6 concern processors that forward batches: see `worker/batches.rs` of lease-kinesis.
//! S5-14, S5-15 and S5-17 concern the daemon. `src/daemon/conversation/tests.rs` covers S5-16 by
//! `unread_reply_fails_the_action`, and S5-20 by
//! `wrong_answer_to_initialize_ends_the_conversation`. In S5-20, Amazon's daemon exits with 1, but
//! this daemon starts another child.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod batches;
mod child;
mod ends;
mod golden;
mod lines;
mod recorded;
mod talk;
