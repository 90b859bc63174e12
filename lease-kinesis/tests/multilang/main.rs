//! The MultiLang protocol: its messages, its lines, and a processor of ours under a daemon.
//!
//! What the tests of the earlier systems ask for, and what those got wrong:
//!
//! | of the earlier systems | here |
//! |---|---|
//! | S5-1, S5-2: the order of sequence numbers | in `position.rs`: `positions_are_in_the_order_in_which_they_are_passed` |
//! | S5-7: an error in the reply is raised by name | `a_refused_checkpoint_is_told_by_its_name_and_the_talk_goes_on` |
//! | S5-8, f4: an unexpected reply | `what_is_said_out_of_turn_ends_the_talk_with_an_error` |
//! | S5-9, f5: a processor fails | `a_batch_that_fails_is_tried_again_before_its_status`, `a_batch_that_keeps_failing_ends_the_child_without_a_status` |
//! | S5-10: an unknown action | `blank_lines_are_passed_over_and_other_lines_that_are_no_message_are_errors` |
//! | S5-11, f1, f3: the whole talk | `the_third_generation_from_beginning_to_end_with_a_throttled_checkpoint` |
//! | S5-12: a checkpoint after the loss | `checkpoint_after_the_loss_of_the_lease_is_refused` |
//! | S5-12, S5-13: both ends | `the_second_generation_ends_by_shutdown_in_the_words_of_each_version` |
//! | S5-18: blank and bogus lines | `a_daemon_passes_over_what_is_no_message_and_says_why` |
//! | S5-19: the end of a pipe | `an_end_of_the_pipe_is_quiet_between_actions_and_an_error_within` |
//! | S5-21, f10: nulls, and a last line without an end | `what_a_daemon_says_is_written_and_read_byte_for_byte`, `an_end_in_the_middle_of_a_line_is_told_from_one_between_lines`; by a child: `what_the_daemon_tells_is_passed_on_and_what_it_does_not_tell_is_not_zero`, `a_last_line_whose_end_is_missing_was_said_and_half_of_one_was_not` |
//! | f2: it stays after a request to stop | `the_third_generation_stops_and_stays_until_the_lease_is_lost` |
//! | f6: all generations | `the_first_generation_is_answered_in_its_own_words`, and those of the others |
//! | f7: a checkpoint asked for outside of an action | `a_checkpoint_that_is_asked_for_between_two_actions_is_asked_once_and_by_its_number` |
//! | f8: endless retries | `a_checkpoint_that_is_throttled_is_not_tried_for_ever` |
//! | f9: two writers | `a_message_is_one_write_and_a_childs_begins_with_a_line_feed` |
//!
//! S5-3 to S5-6 are of batches that are sent on, which is a processor's business: `worker/batches.rs`
//! has one. Of the daemon are S5-14, S5-15 and S5-17; S5-16,
//! `reply_that_the_child_does_not_read_fails_the_action`, and S5-20,
//! `child_that_answers_wrongly_at_its_beginning_is_told_nothing_more`, in
//! `src/multilang/daemon/conversation/tests.rs`. Amazon's daemon exits with 1 at S5-20; this one starts
//! another child.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod child;
mod ends;
mod golden;
mod lines;
mod talk;
