//! The real programs, as a user runs them.

#[path = "../attack/disk_full.rs"]
mod attack_disk_full;
#[path = "../attack/kill.rs"]
mod attack_kill;
#[path = "../attack/old.rs"]
mod attack_old;
mod live_casts;
mod live_counts;
mod live_documents;
mod live_ends;
mod live_holdings;
mod live_keys;
mod live_lost;
mod live_mininet;
mod live_mlfabric;
mod live_overdue;
mod live_policies;
mod live_recipes;
mod live_run;
mod live_security;
mod live_sessions;
mod live_surroundings;
mod live_switch;
mod live_top;
#[path = "live_ends/star.rs"]
mod star;
