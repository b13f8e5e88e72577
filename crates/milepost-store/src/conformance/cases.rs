//! The one list of cases, and what is made of it.

use super::Harness;
use super::{
    books, changes, claim, commit, damage, long_logs, messages, moved, nodes, outcomes, plan_life, random, read,
    recovery, requests, submit, tenants, tokens,
};

/// Hands the list to another macro, behind whatever that one needs besides.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($($then:ident)::+ ($($with:tt)*)) => {
        $($then)::+! { ($($with)*)
            submit {
                a_new_plan_appears_whole_with_its_tasks_pending,
                the_first_event_of_a_task_is_its_creation,
                a_plan_submitted_for_later_is_ready_and_one_to_start_at_once_is_running,
                the_same_plan_again_changes_nothing,
                the_same_plan_again_carries_on_in_any_status,
                the_same_plan_again_to_start_at_once_starts_a_ready_plan_only,
                other_content_under_the_same_name_is_refused,
                a_task_id_of_another_plan_is_refused_even_as_the_last_of_many,
                an_update_adds_and_removes_tasks_and_keeps_the_progress_of_the_others,
                an_update_folds_a_kept_task_over_its_new_stages,
                an_update_is_refused_while_a_live_node_has_a_task_of_the_plan,
                an_update_that_clashes_changes_nothing,
                an_ended_plan_that_gains_tasks_is_ready_again,
                an_update_that_leaves_nothing_to_run_ends_the_plan,
                an_update_that_removes_a_task_frees_its_slot_and_its_tenant,
                an_update_that_gives_a_task_another_tenant_frees_the_one_it_had,
                an_update_to_fewer_slots_leaves_those_that_are_taken_and_starts_nothing_until_there_is_room,
                a_plan_that_refuses_busy_tenants_is_not_stored_and_names_them,
                a_plan_that_refuses_busy_tenants_is_stored_when_they_are_free,
                an_update_looks_for_busy_tenants_among_new_tasks_only,
                an_update_may_add_to_a_tenant_that_its_own_plan_holds,
            }
            claim {
                a_claim_takes_pending_tasks_of_running_plans_only,
                a_claim_commits_the_start_of_the_task_and_of_every_ready_stage,
                tasks_are_claimed_by_plan_then_priority_then_position,
                a_claim_takes_no_more_than_its_limit,
                a_workflow_goes_only_to_a_node_that_knows_it_in_this_version,
                a_claimed_task_is_not_claimed_again,
                claims_made_at_once_never_share_a_task,
                a_plan_never_exceeds_its_max_concurrency,
                a_full_plan_does_not_hold_up_the_next,
                an_ended_or_paused_task_gives_its_slot_back,
                a_task_without_stages_ends_in_its_claim_and_ends_its_plan,
                a_claim_for_one_plan_takes_nothing_of_others,
                a_claim_for_an_unknown_plan_finds_nothing,
                a_parked_task_is_claimed_when_it_is_due_and_not_before,
                a_parked_task_keeps_its_slot,
                a_parked_task_waits_while_its_plan_is_paused,
                a_claim_says_when_the_next_parked_task_is_due,
                a_claim_that_is_told_no_time_goes_by_the_stores_clock,
                a_claim_with_nothing_due_takes_the_lease_and_adds_no_event,
                what_is_due_is_claimed_before_what_is_pending,
                a_rollback_that_nobody_holds_is_claimed_whatever_the_plans_status,
                a_rollback_asked_for_by_an_operator_waits_for_a_slot,
                a_rollback_asked_for_by_somebody_whose_clock_is_ahead_is_due_when_its_time_comes,
            }
            tenants {
                two_tasks_of_one_tenant_are_never_active_at_once,
                a_tenant_is_locked_across_plans,
                a_blocked_task_takes_no_slot_and_holds_up_nobody_behind_it,
                a_blocked_task_says_who_blocks_it,
                a_paused_task_keeps_its_tenant,
                a_task_that_was_paused_before_it_started_has_no_lock,
                a_tenant_is_free_again_however_its_task_ended,
                a_task_takes_its_own_lock_again_under_a_higher_fence,
                a_resumed_task_comes_before_others_of_its_tenant,
                locks_name_tenant_plan_and_task,
                waiters_of_a_plan_that_does_not_run_do_not_starve_others,
                waiters_of_plans_that_wait_for_a_person_do_not_starve_others,
                a_rollback_asked_for_by_an_operator_waits_for_its_tenant,
                a_lost_node_keeps_the_locks_of_its_tasks,
                a_task_that_ends_in_its_claim_lets_the_next_of_its_tenant_run,
                a_waiter_that_is_paused_or_cancelled_lets_the_next_of_its_tenant_run,
            }
            recovery {
                the_tasks_of_a_lost_owner_are_orphaned_and_shown_as_interrupted,
                an_orphan_is_taken_over_with_an_interruption_that_names_the_lost_node,
                an_attempt_cut_off_by_a_crash_is_repeated_under_its_number,
                an_orphan_of_a_manual_plan_is_left_alone_until_a_person_asks,
                an_orphan_keeps_its_slot,
                what_was_interrupted_is_claimed_before_what_is_pending,
                an_orphan_of_a_paused_plan_waits_for_the_resume,
                a_task_released_for_recovery_is_taken_up_without_a_second_interruption,
                a_task_released_for_recovery_in_a_manual_plan_waits_for_a_person,
                ten_takeovers_in_a_row_fail_the_task_and_end_its_plan,
                a_lost_owner_can_commit_nothing,
                a_lost_owner_can_claim_nothing,
                a_lease_of_a_lost_owner_is_worth_nothing_to_the_new_one,
                a_restart_loses_nothing_that_was_acknowledged,
                parked_tasks_survive_a_restart_and_wake_on_time,
                an_interrupted_rollback_goes_on_after_a_restart,
                nothing_of_a_manual_plan_starts_after_a_restart_until_a_person_says_so,
                one_task_of_a_manual_plan_can_be_set_going_alone,
                what_is_set_going_while_no_node_is_there_starts_with_the_next_one,
                a_manual_plan_submitted_again_to_start_at_once_goes_on,
                a_plan_that_does_not_say_follows_the_setting_of_the_node,
                a_task_that_is_set_going_waits_for_no_other_that_is_not,
                a_claim_of_one_plan_leaves_the_words_for_others_alone,
                a_plan_that_is_retried_after_its_end_is_set_going,
                who_changed_a_plan_is_kept_while_its_status_is,
                a_rollback_that_sleeps_after_the_end_of_its_manual_plan_waits_for_a_person,
                a_rollback_that_is_set_going_waits_for_no_other_that_is_not,
                a_claim_of_one_plan_uses_its_words_up_though_its_node_cannot_run_it,
            }
            commit {
                a_commit_is_visible_with_dense_sequence_numbers,
                a_commit_on_an_old_version_is_refused_with_the_version_found,
                a_commit_under_another_lease_is_fenced,
                a_commit_after_the_lease_was_given_back_is_refused,
                a_commit_sent_twice_is_a_conflict_even_if_the_first_ended_the_task,
                a_commit_for_an_unknown_task_is_not_found,
                an_operator_is_refused_while_a_live_node_holds_the_task,
                an_operator_may_change_a_task_that_nobody_holds,
                an_operator_may_change_an_orphan_and_its_old_lease_is_void,
                an_orphan_that_an_operator_leaves_running_is_still_taken_over,
                the_commit_that_ends_the_last_task_ends_the_plan,
                a_plan_with_a_task_that_did_not_complete_is_failed,
                a_paused_task_keeps_its_plan_open,
                a_task_that_pauses_gives_its_lease_back,
                a_plan_can_be_paused_in_the_commit_that_fails_a_task,
                a_pause_with_the_last_failure_still_ends_the_plan,
                a_refused_plan_command_refuses_the_whole_commit,
                a_retried_task_reopens_its_ended_plan_running,
                a_reset_task_reopens_its_ended_plan_ready,
                a_rollback_leaves_the_task_unheld_and_claimable,
                positions_only_grow,
                a_conflict_changes_nothing,
                of_two_commits_made_at_once_on_one_version_one_is_taken,
                a_lease_can_be_given_back_without_an_event,
                a_task_that_rolls_back_by_itself_keeps_lease_slot_and_tenant,
            }
            plan_life {
                every_verb_follows_the_table_of_plan_statuses,
                a_refused_verb_changes_nothing,
                a_change_of_status_grows_the_version_and_says_who_asked,
                an_end_that_nobody_asked_for_names_nobody,
                a_plan_knows_when_it_started_and_ended,
                pending_tasks_of_a_paused_plan_are_claimed_after_its_resume,
                pending_tasks_of_a_cancelled_plan_are_never_claimed,
                a_verb_for_an_unknown_plan_finds_nothing,
                a_verb_on_another_version_than_expected_changes_nothing,
                an_update_grows_the_version,
            }
            changes {
                every_commit_and_every_plan_status_is_a_change_in_order,
                a_plan_started_with_its_submission_changes_once,
                every_way_to_a_plan_status_is_a_change,
                a_plan_that_ends_in_a_claim_is_a_change,
                what_is_refused_is_no_change,
                changes_are_followed_in_steps_without_a_gap_or_a_repeat,
                the_changes_of_one_plan_are_its_own_and_its_tasks,
                the_changes_of_an_unknown_plan_are_not_found,
                an_update_is_a_change_of_its_plan_and_takes_removed_tasks_out_of_the_log,
                positions_are_never_given_twice,
                changes_survive_a_restart,
                who_follows_while_others_commit_misses_nothing,
            }
            requests {
                a_request_sent_again_gets_the_first_answer_and_changes_nothing,
                a_request_sent_again_is_answered_even_if_it_would_clash_by_now,
                a_key_used_for_another_request_is_refused,
                a_refused_submission_leaves_its_key_free,
                a_key_is_forgotten_after_a_day,
                forgetting_old_keys_keeps_the_young_ones,
                one_request_sent_many_times_at_once_is_taken_once,
            }
            tokens {
                tokens_are_kept_whole_and_listed_oldest_first,
                a_token_put_again_takes_the_place_of_the_first,
            }
            moved {
                an_imported_plan_is_as_it_was_with_all_its_history,
                an_imported_plan_goes_on_where_it_was,
                what_a_lost_node_had_stays_interrupted_in_a_manual_plan_that_is_imported,
                an_imported_task_keeps_its_tenant_and_its_slot,
                a_tenants_fence_grows_on_after_an_import_also_when_its_lock_was_given_back,
                a_rollback_that_was_asked_for_begins_after_an_import,
                an_imported_plan_that_has_ended_stays_ended,
                an_imported_plan_that_was_ready_waits_to_be_started,
                an_imported_plan_is_the_same_whether_or_not_it_waits_for_a_person,
                the_same_plan_submitted_after_an_import_carries_on,
                an_import_is_refused_whole_when_a_name_in_it_is_taken,
                an_import_is_refused_whole_when_a_tenant_in_it_is_held,
                an_import_is_told_among_the_changes,
                a_long_log_is_imported_whole_and_goes_on,
            }
            read {
                unknown_ids_are_none_or_not_found,
                a_definition_reads_back_as_it_was_submitted,
                events_are_read_after_a_sequence_and_up_to_a_limit,
                tasks_of_a_plan_are_paged_in_the_order_of_the_file,
                tasks_of_a_plan_are_filtered_by_status,
                tasks_of_a_tenant_come_newest_first,
                plans_come_newest_first_in_pages,
                a_row_agrees_with_its_task,
                output_is_kept_in_order_and_found_by_stage_and_attempt,
                output_rides_along_with_a_commit,
                progress_is_kept_until_its_stage_ends,
                progress_of_a_task_that_is_paused_in_mid_stage_is_kept_until_it_is_resumed,
                progress_of_a_task_whose_node_stopped_is_kept_until_another_takes_it_on,
                a_plans_counts_follow_its_tasks,
            }
            long_logs {
                a_long_log_reads_back_as_the_task_that_its_events_make,
                a_damaged_snapshot_is_passed_over,
                a_workflow_that_begins_anew_for_ever_reads_back_as_it_was,
                an_update_folds_a_long_log_over_its_new_stages,
                a_task_with_a_very_large_image_goes_on,
            }
            damage {
                a_damaged_task_leaves_its_tenant_to_the_next_in_line,
                a_damaged_task_that_ran_gives_back_its_slot_and_its_tenant,
                a_damaged_creation_is_noticed_by_whoever_reads_the_task,
                a_repaired_task_ends_as_failed_with_what_could_be_read_and_its_plan_ends,
                a_repaired_task_runs_again_from_its_start,
                a_task_whose_definition_is_damaged_can_be_given_up_and_not_run_again,
                a_paused_task_that_is_damaged_gives_its_tenant_back_when_it_is_repaired,
                a_cancelled_plan_ends_when_its_damaged_task_is_repaired,
                what_can_be_read_of_a_damaged_log_is_read_with_dense_numbers,
            }
            messages {
                a_task_that_awaits_its_message_is_claimed_by_nobody,
                a_task_is_claimed_once_when_its_message_is_here,
                a_restart_neither_loses_a_message_nor_the_wait_for_one,
                a_task_that_awaits_its_message_holds_up_nobody,
                a_task_paused_before_its_message_awaits_it_after_its_resume,
                a_task_cancelled_before_its_message_ends_its_plan,
                tasks_still_await_their_messages_after_the_plan_is_sent_again_or_changed,
                an_update_may_change_what_sets_tasks_off,
                an_imported_task_still_awaits_its_message,
                a_message_heard_before_is_refused_and_changes_nothing,
                a_message_that_is_refused_refuses_no_other_that_comes_with_it,
                one_message_that_comes_many_times_at_once_is_heard_once,
                a_message_is_forgotten_when_its_time_is_over,
                a_task_that_its_message_made_is_stored_with_it_and_claimed_at_once,
            }
            outcomes {
                a_completed_task_leaves_what_is_to_be_said_of_it,
                a_task_without_stages_leaves_it_in_its_claim,
                a_failed_task_leaves_word_of_it_and_its_dead_letter_in_order,
                a_message_that_comes_too_late_fails_its_task_and_is_given_up,
                a_task_that_was_not_started_in_time_is_given_up_in_its_claim,
                a_task_that_is_given_up_in_its_claim_pauses_a_plan_that_stops_at_failures,
                a_task_in_a_crash_loop_is_given_up_in_its_claim,
                a_task_that_no_message_set_off_leaves_nothing,
                a_retry_strikes_out_the_dead_letter,
                a_refused_commit_changes_nothing_in_the_books,
                a_task_added_again_under_its_name_can_be_given_up_again,
            }
            books {
                a_store_keeps_the_id_that_it_was_given_first,
                an_entry_reads_back_as_it_was_written,
                a_change_of_the_books_is_made_whole_or_not_at_all,
                what_is_not_there_can_be_struck_out,
                one_change_can_put_an_entry_in_the_place_of_another,
                entries_come_in_order_and_in_pages_also_after_a_restart,
                an_entry_is_gone_when_its_time_is_over,
                what_is_over_leaves_the_lists_and_takes_nothing_else_along,
                of_many_who_want_one_key_at_once_one_gets_it,
                a_plan_is_stored_with_its_entries_or_not_at_all,
                what_was_heard_before_is_said_before_any_clash,
                a_request_sent_again_writes_its_entries_once,
            }
            nodes {
                a_store_that_was_away_costs_nobody_its_lease,
                a_node_that_does_not_come_back_with_the_store_loses_its_tasks_after_its_lease,
                a_node_that_falls_silent_loses_its_tasks_after_its_lease_while_others_beat,
                a_tenant_stays_closed_through_hours_without_a_node,
                a_visitor_alone_finds_out_that_a_node_is_gone,
                a_node_that_leaves_in_good_order_hands_its_era_on,
                a_store_that_was_away_ends_no_era,
                a_word_that_is_given_to_nobody_in_particular_is_not_lost_with_the_era,
                a_word_that_is_given_while_a_node_is_there_is_for_its_era,
                a_task_that_is_set_going_calls_a_node_whatever_else_of_its_plan_waits,
                whoever_sets_a_task_going_calls_the_other_nodes,
                a_node_that_goes_on_with_plans_that_do_not_say_finds_them_in_the_era_of_one_that_does_not,
                a_message_that_a_visitor_takes_in_calls_a_node,
                a_sleeper_that_a_visitor_lets_go_on_calls_a_node,
                a_sleeper_that_another_node_lets_go_on_calls_one_that_can_run_it,
                a_letter_keeps_its_first_answer,
                a_beat_that_ends_another_nodes_lease_says_to_look_at_once,
                a_letter_to_a_node_that_is_gone_is_never_answered,
                a_node_can_call_the_others,
                a_node_that_was_given_up_says_nothing_of_an_era_when_it_leaves,
                a_rolling_restart_hands_the_era_on_by_nodes_that_are_full,
                a_node_that_cannot_tell_its_era_wakes_what_goes_on_by_itself,
                words_for_a_plan_that_a_node_runs_alone_are_for_that_node,
                a_task_that_is_set_going_is_not_left_in_line_behind_one_that_is_not,
                a_task_that_is_set_going_for_the_next_era_leaves_its_line,
            }
            random {
                any_history_keeps_the_invariants_and_matches_the_memory_store,
            }
        }
    };
}

macro_rules! list {
    (() $($module:ident { $($case:ident),+ $(,)? })+) => {
        /// The names of all cases, in order.
        pub const CASES: &[&str] = &[$($(stringify!($case)),+),+];

        /// Runs one case.
        ///
        /// # Panics
        /// When the backend breaks the rule, or there is no such case.
        pub async fn run(harness: &dyn Harness, case: &str) {
            match case {
                $($(stringify!($case) => Box::pin($module::$case(harness)).await,)+)+
                unknown => panic!("there is no case `{unknown}`"),
            }
        }
    };
}
__conformance_cases!(list());

/// Runs every case, one after another.
pub async fn run_all<H: Harness>(harness: H) {
    for case in CASES {
        run(&harness, case).await;
    }
}

/// One `#[tokio::test]` for every case of the suite; the expression makes the harness of each.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::__conformance_cases!($crate::__conformance_test_fns($harness));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_test_fns {
    (($harness:expr) $($module:ident { $($case:ident),+ $(,)? })+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                $crate::conformance::run(&$harness, stringify!($case)).await;
            }
        )+)+
    };
}
