//! What every store must do, as one case per property, one file per family of commands.
//!
//! A store enrols with three lines: a [`Subject`], and `windlass_tests::conformance!(MySubject);`
//! in a test file of its own. `tests/enrolment.rs` sees to it that no case is left out of the list.
#![allow(missing_docs, reason = "the name of a case is the sentence it shows")]
#![allow(clippy::wildcard_imports, reason = "the fixture is the language of the cases")]

pub mod batch;
pub mod cancel_replay;
pub mod claim;
pub mod concurrent;
pub mod concurrent_figures;
pub mod concurrent_queues;
pub mod dead_letters;
pub mod delete_purge;
pub mod enqueue;
pub mod figures;
pub mod heartbeat;
pub mod idempotency;
pub mod marker;
pub mod promote;
pub mod queue_deletion;
pub mod queues;
pub mod reader;
pub mod reap;
pub mod reopen;
pub mod repeat;
pub mod settings_workers;
pub mod settle;
pub mod storm;
pub mod timeout;

use windlass_core::store::{Batch, JobRefused, Leased, Outcomes};
use windlass_core::{Epoch, JobId, Rejected, StaleReason, StateName};

use crate::fixture::{Subject, World};

/// Makes one test per case for this subject.
#[macro_export]
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance_family!(
            $subject,
            enqueue,
            [
                a_job_is_stored_with_every_option_as_it_was_given,
                options_at_their_bounds_are_stored_as_given,
                every_strategy_of_retrying_is_stored_as_given,
                what_a_job_does_not_say_its_queue_says_and_else_the_policy,
                a_payload_comes_back_byte_for_byte,
                a_payload_claimed_in_its_own_batch_comes_back_byte_for_byte,
                a_payload_of_the_greatest_length_comes_back_whole,
                equal_jobs_without_a_key_are_different_jobs,
                ids_are_given_in_the_order_of_the_batch,
                a_delay_counts_from_the_instant_of_the_batch,
                a_job_due_now_is_ready_and_one_due_a_tick_later_is_not,
                an_instant_in_the_past_means_now,
                an_instant_too_far_ahead_is_refused,
                a_refused_job_does_not_leave_a_queue_behind,
                a_refused_job_uses_no_id,
                a_kind_too_many_is_refused_while_known_kinds_are_taken,
                kinds_are_counted_within_a_batch_too,
                a_kind_whose_jobs_are_all_gone_makes_room_for_another,
                names_that_differ_by_case_or_length_are_told_apart,
                a_receipt_carries_the_row_only_if_it_was_asked_for,
                a_receipt_carries_the_row_as_its_batch_left_it,
            ]
        );
        $crate::conformance_family!(
            $subject,
            idempotency,
            [
                the_same_request_finds_the_job_it_made,
                the_same_request_finds_the_job_in_every_state,
                the_receipt_of_a_duplicate_carries_the_row_of_the_job_that_is_there,
                the_same_key_twice_in_one_batch_makes_one_job,
                another_request_with_the_key_in_one_batch_is_a_conflict,
                a_request_that_differs_in_one_option_conflicts_and_names_the_job,
                every_two_requests_that_differ_conflict_whichever_came_first,
                the_same_json_written_otherwise_is_the_same_request,
                an_option_given_as_the_default_is_the_same_request,
                a_duplicate_is_recognised_in_a_full_queue,
                a_refused_job_leaves_its_key_free,
                a_key_lives_past_its_window_until_its_job_is_finished,
                the_key_of_a_finished_job_is_free_once_its_window_ends,
                a_window_counts_from_the_creation_of_the_job_not_from_its_end,
                a_job_finished_in_the_same_batch_has_freed_its_key,
                a_key_taken_over_names_the_later_job,
                a_key_taken_over_begins_a_window_of_its_own,
                a_key_outlives_its_deleted_job_for_its_window,
                the_key_of_a_replayed_job_lives_as_long_as_the_job_again,
                a_replayed_job_does_not_take_its_key_back,
                keys_that_differ_by_case_or_length_are_told_apart,
                one_key_is_one_key_in_all_queues,
            ]
        );
        $crate::conformance_family!(
            $subject,
            claim,
            [
                jobs_are_claimed_by_priority_then_by_when_they_are_due_then_by_id,
                jobs_claimed_one_by_one_come_in_the_same_order,
                a_demand_for_everything_takes_from_every_queue_by_rank,
                a_retried_job_ranks_by_when_it_is_due_again,
                a_job_given_back_is_claimed_before_those_that_came_after_it,
                only_the_kinds_asked_for_are_claimed,
                the_kinds_excepted_are_not_claimed,
                only_the_queues_asked_for_are_claimed_from,
                a_claim_that_finds_nothing_writes_nothing,
                a_claim_is_dry_only_if_it_found_less_than_it_asked_for,
                a_claim_is_charged_and_dated_when_it_is_made,
                each_claim_of_a_job_has_a_token_of_its_own,
                a_lease_lasts_as_long_as_the_job_says,
                a_taker_may_ask_for_leases_of_its_own_length,
                a_claimed_job_is_not_claimed_again,
                a_finished_job_is_not_claimed,
                takers_are_filled_in_their_order,
                claims_in_one_batch_are_served_in_order_and_share_no_job,
                new_jobs_are_claimed_in_their_own_batch_among_the_stored_ones,
                stored_and_new_jobs_are_each_claimed_with_their_own_payload,
                new_jobs_left_over_are_claimed_later,
                a_new_job_for_later_is_not_claimed_in_its_own_batch,
                jobs_cancelled_or_settled_in_the_batch_are_not_claimed,
                a_job_given_back_in_the_batch_is_claimed_again_at_its_place,
                a_job_that_failed_in_the_batch_is_claimed_again_if_it_need_not_wait,
                a_job_cancelled_and_replayed_in_the_batch_is_claimed_at_its_new_place,
                a_job_replayed_within_its_own_instant_is_claimed_once,
                a_job_heard_from_in_the_batch_is_not_claimed,
                a_job_for_later_is_never_claimed_early,
                urgent_jobs_for_later_do_not_hide_a_ready_one,
                a_ready_job_stays_ready_when_the_clock_is_set_back,
                a_large_claim_comes_in_order_without_gap_or_repetition,
                a_claim_finds_what_stands_behind_many_jobs_cancelled_in_its_batch,
                a_claim_ends_before_its_payloads_exceed_their_limit,
                what_did_not_fit_is_claimed_in_its_rank_by_the_next_demand,
                what_did_not_fit_leaves_its_room_under_a_concurrency_limit,
            ]
        );
        $crate::conformance_family!(
            $subject,
            settle,
            [
                a_completed_job_is_done_and_keeps_its_result,
                a_job_may_be_done_without_a_result,
                a_result_comes_back_byte_for_byte,
                a_failed_job_waits_as_long_as_its_policy_says,
                a_failed_job_is_not_ready_before_its_wait_is_over,
                a_wait_named_by_the_failure_goes_before_the_policy,
                a_failure_for_good_is_dead_at_once_whatever_retries_are_left,
                a_job_without_attempts_left_is_dead_with_its_reason,
                a_job_without_retries_is_dead_after_one_failure,
                a_released_job_gets_its_attempt_back_and_keeps_its_place,
                a_snoozed_job_gets_its_attempt_back_and_waits,
                a_job_put_off_for_no_time_is_ready_again,
                giving_back_costs_no_retry_however_often,
                giving_back_returns_only_the_latest_attempt,
                a_late_report_counts_as_long_as_nobody_took_the_lease_back,
                the_record_of_a_failed_attempt_holds_all_that_was_reported,
                an_error_comes_back_byte_for_byte,
                output_with_a_nul_is_remembered_as_it_was_reported,
                a_released_attempt_is_remembered_without_an_error,
                the_last_error_of_a_job_stays_when_it_is_done_at_last,
                only_the_latest_attempts_are_remembered,
                a_stale_token_does_not_complete,
                a_stale_token_does_not_fail,
                a_stale_token_does_not_snooze,
                a_stale_token_does_not_release,
                a_token_that_was_never_given_out_reports_nothing,
                a_report_on_a_job_that_does_not_exist_is_refused_by_its_id,
                a_report_after_the_lease_was_taken_back_is_refused,
                a_report_on_a_job_cancelled_while_it_ran_is_refused,
            ]
        );
        $crate::conformance_family!(
            $subject,
            repeat,
            [
                a_completion_sent_again_gets_its_first_answer,
                a_failure_sent_again_gets_its_first_answer,
                a_release_sent_again_gets_its_first_answer,
                a_snooze_sent_again_gets_its_first_answer,
                a_repetition_does_not_replace_what_was_stored_first,
                another_verdict_with_a_spent_token_is_refused,
                of_two_verdicts_in_one_batch_the_first_counts,
                a_report_sent_again_after_a_replay_gets_its_first_answer,
                the_last_failure_sent_again_after_a_replay_gets_its_first_answer,
                a_report_sent_again_after_a_cancellation_gets_its_first_answer,
                a_report_sent_again_when_the_job_fell_due_gets_its_first_answer,
                a_report_sent_again_after_the_next_claim_is_refused,
                a_report_sent_again_in_the_batch_of_the_next_claim_gets_its_first_answer,
            ]
        );
        $crate::conformance_family!(
            $subject,
            timeout,
            [
                a_lease_ends_with_the_timeout_of_its_attempt,
                an_attempt_past_its_timeout_has_failed_and_waits_like_any_that_fails,
                the_last_attempt_past_its_timeout_is_dead,
                a_heartbeat_past_the_timeout_is_refused_before_anything_is_reaped,
                a_process_keeps_the_lease_of_its_own_attempt_while_it_stops_it,
                a_step_of_the_clock_times_nothing_out,
                the_leases_of_a_dead_worker_are_taken_back_at_once_and_charged,
            ]
        );
        $crate::conformance_family!(
            $subject,
            heartbeat,
            [
                a_heartbeat_extends_the_lease_from_now,
                a_heartbeat_changes_nothing_but_the_lease,
                a_new_length_holds_for_later_heartbeats_too,
                a_new_length_ends_with_its_lease,
                a_late_heartbeat_counts_as_long_as_nobody_took_the_lease_back,
                a_note_on_progress_is_kept_until_the_next_one,
                a_note_on_progress_comes_back_byte_for_byte,
                a_heartbeat_by_a_clock_a_moment_behind_does_not_shorten_a_lease,
                a_heartbeat_by_a_clock_that_was_set_back_replaces_an_end_that_means_nothing,
                of_several_heartbeats_in_one_batch_the_last_stands,
                a_stale_token_does_not_heartbeat,
                a_token_that_was_never_given_out_does_not_heartbeat,
                a_settled_job_hears_no_heartbeat,
                a_heartbeat_learns_that_its_job_was_cancelled,
                a_heartbeat_learns_that_its_lease_was_taken_back,
            ]
        );
        $crate::conformance_family!(
            $subject,
            batch,
            [
                reports_come_before_heartbeats,
                reports_come_before_operators,
                heartbeats_come_before_operators,
                operators_come_before_new_jobs,
                new_jobs_come_before_leases_that_ran_out,
                whoever_reports_in_time_for_the_batch_is_not_reaped,
                what_an_operator_did_in_the_batch_is_not_undone_by_time,
                claims_come_last_and_see_what_every_section_made_ready,
                claims_see_the_gates_that_operators_set,
                commands_of_a_section_are_applied_in_their_order,
                a_job_changed_many_times_in_a_batch_ends_where_the_last_change_put_it,
                a_job_that_reported_and_was_deleted_in_one_batch_leaves_nothing,
                refused_commands_do_not_spoil_the_others,
                a_batch_of_refusals_alone_leaves_no_trace,
                answers_stand_in_the_order_of_their_commands,
                a_batch_tells_when_what_it_wrote_is_next_due,
                a_large_batch_of_everything_keeps_the_store_in_agreement,
            ]
        );
        $crate::conformance_family!(
            $subject,
            marker,
            [
                a_batch_that_wrote_is_found,
                a_batch_that_was_never_sent_is_not_found,
                a_fresh_store_finds_no_batch,
                a_batch_is_still_found_when_later_ones_were_committed,
                each_process_finds_its_own_batches_only,
                of_each_process_one_marker_is_kept,
                a_batch_that_changed_nothing_leaves_no_marker,
                ones_own_commits_are_no_news,
            ]
        );
        $crate::conformance_family!(
            $subject,
            reopen,
            [
                everything_is_there_after_a_crash,
                an_empty_store_is_empty_after_a_crash,
                a_healthy_store_may_be_opened_anew,
                ids_are_not_given_out_again,
                a_holder_goes_on_after_a_crash,
                a_stale_token_is_still_stale_after_a_crash,
                a_report_sent_again_after_a_crash_gets_its_first_answer,
                a_key_is_remembered_after_a_crash,
                a_batch_is_found_after_a_crash,
                ready_jobs_come_in_the_same_order_after_a_crash,
                jobs_for_later_fall_due_after_a_crash,
                leases_run_out_after_a_crash,
                a_paused_queue_is_paused_after_a_crash,
                a_deleted_job_stays_away_after_a_crash,
            ]
        );
        $crate::conformance_family!(
            $subject,
            reap,
            [
                a_lease_that_runs_is_not_reaped,
                a_lease_is_reaped_at_the_very_instant_it_runs_out,
                a_lease_runs_from_its_latest_heartbeat,
                a_lease_of_another_length_is_reaped_at_its_own_end,
                a_reap_tells_when_the_earliest_lease_ends,
                an_expired_lease_is_requeued_at_once_with_its_attempt_and_its_error,
                the_last_attempt_expired_goes_to_the_dead_letters_with_a_reason,
                a_job_that_expires_every_time_is_run_as_often_as_it_may_be,
                a_reaped_job_is_claimed_again_in_the_same_batch,
                a_report_that_comes_after_the_reaping_is_refused,
                a_job_settled_in_the_same_batch_is_not_reaped,
                a_heartbeat_in_the_same_batch_saves_the_lease,
                a_job_cancelled_in_the_same_batch_is_not_reaped,
                leases_are_reaped_page_by_page_none_skipped_and_none_twice,
                the_earliest_end_is_reaped_first,
                more_than_a_page_of_expired_leases_is_reaped_with_the_cursor,
                a_lease_given_before_the_clock_was_stepped_counts_its_full_length_again,
                a_lease_given_after_the_clock_was_stepped_runs_out_at_its_own_end,
                leases_held_at_the_head_do_not_stop_later_ones_from_being_reaped,
                a_clock_that_disagrees_by_more_than_a_second_reaps_nothing,
                a_clock_that_disagrees_by_a_second_and_no_more_is_believed,
                a_stepped_clock_stops_the_reaping_and_nothing_else_of_the_batch,
            ]
        );
        $crate::conformance_family!(
            $subject,
            promote,
            [
                a_scheduled_job_does_not_fall_due_before_its_time,
                a_scheduled_job_falls_due_at_the_very_instant,
                a_job_that_is_due_is_not_handed_out_before_it_was_promoted,
                a_job_is_promoted_and_claimed_in_one_batch,
                jobs_fall_due_page_by_page_the_earliest_first,
                a_page_of_jobs_that_fell_due_holds_none_that_did_not,
                jobs_of_every_queue_fall_due_and_only_theirs_are_ready,
                promoted_jobs_rank_by_when_they_were_due_not_by_when_they_were_promoted,
                a_job_that_was_put_off_or_waits_for_its_retry_falls_due_again,
                a_cancelled_job_does_not_fall_due_not_even_in_the_same_batch,
                a_clock_set_back_does_not_hide_a_job_that_had_become_ready,
                a_clock_set_back_lets_a_job_that_was_not_due_wait_for_its_instant,
                a_promotion_tells_when_the_earliest_scheduled_job_falls_due,
            ]
        );
        $crate::conformance_family!(
            $subject,
            cancel_replay,
            [
                a_waiting_job_is_cancelled_and_not_run,
                a_running_job_is_cancelled_and_its_token_is_stale,
                cancelling_twice_is_cancelling_once,
                a_job_that_is_done_or_failed_cannot_be_cancelled,
                a_verdict_repeated_after_the_cancel_is_answered_as_it_was_then,
                a_job_cancelled_in_the_same_batch_is_not_claimed,
                a_report_in_the_same_batch_comes_before_the_cancel,
                a_failed_job_is_replayed_with_its_attempts_back_and_its_epoch_kept,
                a_cancelled_job_is_replayed_the_same_way,
                a_replayed_job_has_all_its_attempts_again,
                replay_is_refused_for_a_job_that_waits_runs_or_is_done,
                a_token_from_before_the_replay_does_not_settle_the_new_run,
                a_verdict_repeated_after_the_replay_is_answered_as_it_was_then,
                a_job_is_replayed_and_claimed_in_one_batch,
                a_replayed_job_stands_behind_those_that_wait_already,
                a_replayed_job_of_a_paused_queue_waits,
                commands_on_the_same_job_take_effect_in_their_order,
                an_unknown_job_is_not_found,
                a_refused_command_does_not_spoil_the_others_of_its_batch,
            ]
        );
        $crate::conformance_family!(
            $subject,
            dead_letters,
            [
                the_newest_failure_is_replayed_first,
                a_replayed_dead_letter_has_its_attempts_back_and_its_epoch_kept,
                no_more_are_replayed_than_asked_for_and_all_pages_together_replay_all_once,
                a_page_that_ends_with_the_last_match_leaves_none_behind,
                a_job_that_fails_again_is_not_met_again_behind_the_cursor,
                a_page_replays_no_more_rows_than_a_page_holds,
                a_page_without_a_match_still_moves_on,
                only_dead_letters_of_the_queue_are_replayed,
                only_dead_letters_of_the_kind_are_replayed,
                without_a_filter_every_dead_letter_is_replayed,
                only_dead_letters_whose_last_error_holds_the_text_are_replayed,
                the_text_of_an_error_is_compared_as_text_and_not_as_a_pattern,
                the_latest_error_counts_and_not_an_earlier_one,
                jobs_that_are_no_dead_letters_are_not_replayed,
                a_job_replayed_or_deleted_in_the_same_batch_is_not_replayed_again,
                a_dead_letter_cancelled_in_the_same_batch_is_not_replayed,
                replayed_dead_letters_are_claimed_in_the_same_batch,
                discarded_dead_letters_are_gone_with_their_attempts_and_no_others,
                a_page_of_discarded_dead_letters_ends_at_its_limit_and_goes_on_behind_it,
                a_dead_letter_replayed_in_the_same_batch_is_not_discarded,
            ]
        );
        $crate::conformance_family!(
            $subject,
            delete_purge,
            [
                a_live_job_is_not_deleted,
                a_finished_job_is_deleted_with_its_documents_and_attempts,
                a_job_deleted_twice_is_not_found_the_second_time,
                a_job_deleted_in_the_batch_that_finished_it_leaves_nothing,
                the_id_of_a_deleted_job_is_not_given_out_again,
                the_key_of_a_deleted_job_is_kept_until_its_window_ends,
                a_job_deleted_in_the_same_batch_is_still_known_by_its_key,
                a_key_whose_window_is_over_goes_with_its_job,
                each_state_has_an_age_of_its_own,
                a_state_without_an_age_is_kept_forever,
                a_finished_job_is_purged_at_the_very_end_of_its_age_and_not_before,
                the_age_counts_from_the_end_of_a_job_and_not_from_its_creation,
                a_live_job_is_never_purged,
                a_job_replayed_in_the_same_batch_is_not_purged,
                a_job_that_ended_anew_in_the_same_batch_is_not_purged,
                a_job_deleted_in_the_same_batch_is_not_counted_as_purged,
                a_purge_removes_no_more_than_it_may_and_says_that_there_is_more,
                a_purge_tells_when_the_next_job_is_past_its_age,
                a_page_that_left_some_behind_tells_an_instant_that_has_passed,
                the_key_of_a_purged_job_is_kept_until_its_window_ends,
                an_orphaned_key_is_removed_by_a_later_purge_and_not_before,
                orphaned_keys_are_removed_page_by_page,
                an_orphaned_key_taken_over_in_the_batch_of_the_purge_is_kept,
                a_key_taken_over_by_a_later_job_is_not_removed_with_the_earlier_one,
                a_purge_forgets_processes_and_workers_silent_for_longer_than_they_are_kept,
                forgetting_a_silent_worker_leaves_what_it_holds,
            ]
        );
        $crate::conformance_family!(
            $subject,
            queue_deletion,
            [
                a_queue_without_jobs_is_deleted_with_its_settings,
                a_queue_with_a_job_in_any_state_is_not_deleted,
                a_queue_whose_last_job_goes_in_the_same_batch_is_deleted,
                a_deleted_queue_is_made_again_without_settings,
                a_queue_made_after_another_was_deleted_shares_nothing_with_it,
                a_deleted_queue_makes_room_for_another,
                queues_that_hold_nothing_vanish,
                a_paused_queue_or_one_with_settings_does_not_vanish,
                a_queue_that_gets_a_job_or_a_setting_in_the_same_batch_does_not_vanish,
                a_sweep_looks_at_a_page_of_queues_and_says_where_to_go_on,
            ]
        );
        $crate::conformance_family!(
            $subject,
            queues,
            [
                a_paused_queue_takes_jobs_but_hands_out_none_until_it_is_resumed,
                pause_and_resume_count_for_the_claims_of_their_own_batch,
                a_pause_stops_neither_running_jobs_nor_other_queues,
                a_command_on_an_unknown_queue_makes_it,
                there_are_no_more_queues_than_there_may_be,
                setting_a_queue_replaces_all_its_settings,
                the_settings_of_a_queue_and_its_pause_leave_each_other_alone,
                the_defaults_of_a_queue_fill_in_what_a_job_does_not_say,
                what_a_job_says_wins_over_the_defaults_of_its_queue,
                new_defaults_of_a_queue_leave_the_jobs_it_has,
                a_full_queue_refuses_jobs_whether_they_are_due_or_not,
                within_one_batch_exactly_those_beyond_the_limit_are_refused,
                a_full_queue_has_room_again_as_jobs_are_claimed_or_cancelled,
                a_full_queue_takes_back_the_jobs_it_has,
                a_refused_job_does_not_make_its_queue,
                concurrency_counts_running_jobs_of_all_workers_and_kinds,
                concurrency_holds_among_the_claims_of_one_batch,
                a_job_that_stops_running_makes_room_for_another,
                room_made_in_a_batch_is_there_for_its_claims,
                a_lowered_concurrency_stops_nothing_and_starts_nothing,
                jobs_that_become_ready_make_their_queue_ready,
                room_under_a_concurrency_limit_makes_the_queue_ready_and_room_elsewhere_does_not,
                a_queue_is_ready_after_its_own_change_unless_it_is_paused,
                what_makes_nothing_claimable_makes_no_queue_ready,
            ]
        );
        $crate::conformance_family!(
            $subject,
            settings_workers,
            [
                a_setting_is_kept_then_replaced_then_forgotten,
                of_several_values_in_one_batch_the_last_counts,
                the_value_of_a_setting_is_kept_byte_for_byte_and_survives_a_crash,
                a_worker_is_known_from_when_it_was_first_seen,
                a_worker_is_kept_as_it_last_described_itself,
                what_a_worker_would_run_is_kept_and_replaced,
                a_worker_that_names_more_than_is_kept_is_taken_to_run_all,
                a_worker_asked_to_stop_hears_it_when_it_is_next_seen,
                asking_a_worker_to_stop_touches_nothing_else_of_it,
                a_worker_that_is_not_there_cannot_be_asked_to_stop,
                a_worker_that_was_removed_starts_anew_without_the_mark,
                looking_at_a_worker_writes_nothing,
                a_worker_seen_twice_in_one_batch_is_one_worker,
                a_removed_worker_is_gone_and_the_others_are_not,
                of_seen_and_removed_in_one_batch_the_last_counts,
                a_worker_lists_exactly_the_jobs_it_holds,
                a_worker_that_never_announced_itself_holds_jobs_and_is_not_listed,
                removing_a_worker_leaves_its_leases_to_run,
                the_host_of_a_worker_is_kept_without_characters_that_a_store_cannot_hold,
            ]
        );
        $crate::conformance_family!(
            $subject,
            figures,
            [
                figures_that_are_added_to_a_slot_are_summed_and_survive_a_crash,
                each_process_has_rows_of_its_own_and_all_are_summed,
                old_figures_are_folded_into_longer_spans_and_the_total_stays,
                figures_of_a_slot_that_is_not_long_over_are_not_folded,
                figures_that_come_late_are_folded_like_the_others,
                figures_are_folded_page_by_page,
                a_range_of_figures_begins_with_its_start_and_ends_before_its_end,
                past_figures_are_told_in_steps_whatever_span_they_are_kept_in,
                a_batch_tells_what_it_did_to_jobs,
                a_lease_that_expires_is_counted_and_its_time_is_not,
                heartbeats_replays_and_removals_are_not_counted,
            ]
        );
        $crate::conformance_family!(
            $subject,
            reader,
            [
                jobs_come_in_the_order_they_were_asked_for_with_gaps,
                a_reader_made_earlier_sees_what_was_committed_since,
                all_jobs_are_listed_by_id_the_newest_first,
                waiting_jobs_are_listed_by_when_they_are_due_the_latest_first,
                running_jobs_are_listed_by_the_end_of_their_lease_the_latest_first,
                finished_jobs_are_listed_by_when_they_finished_the_latest_first,
                a_list_holds_the_jobs_of_its_queue_and_kind_only,
                jobs_that_come_between_two_pages_move_nothing,
                a_page_behind_a_job_that_has_left_the_list_goes_on_there,
                what_a_filter_includes_is_on_the_first_page_whatever_else_is_stored,
                a_page_of_a_list_without_filter_is_as_long_as_asked_for,
                the_oldest_ready_job_of_a_queue_is_the_one_due_the_longest,
                the_counters_of_a_queue_tell_where_its_jobs_are,
                a_queue_whose_last_job_is_gone_stays_without_kinds,
                attempts_are_told_oldest_first_and_of_one_job_only,
                every_change_of_state_is_told_exactly_once,
            ]
        );
    };
}

/// Makes the tests of one family.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_family {
    ($subject:ty, $family:ident, [$($case:ident),* $(,)?]) => {
        mod $family {
            #[allow(unused_imports, reason = "the subject may stand in the root of the test")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    if <$subject as $crate::fixture::Subject>::is_available() {
                        $crate::conformance::$family::$case::<$subject>();
                    }
                }
            )*
        }
    };
}

/// Commits a batch that must write nothing at all.
#[track_caller]
fn commit_idle<S: Subject>(world: &mut World<S>, fill: impl FnOnce(&mut Batch)) -> Outcomes {
    let before = world.dump();
    let out = world.commit(fill);
    assert!(!out.wrote, "the batch had nothing to write, but it wrote");
    assert_eq!(world.dump(), before, "the batch had nothing to change, but something changed");
    out
}

/// The jobs that were claimed, in order.
fn ids(leased: &[Leased]) -> Vec<JobId> {
    leased.iter().map(|leased| leased.job.id).collect()
}

/// The refusal of a token that does not hold the job: it is in this state, claimed so often.
fn stale<T>(reason: StaleReason, state: StateName, epoch: u64) -> Result<T, JobRefused> {
    Err(Rejected::Stale { reason, state, epoch: Epoch::new(epoch) }.into())
}
