//! Random networks, jobs and workers: the world asserts order, acknowledgements before grants, and
//! that nothing ends twice; here the links and the ends are looked at.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Setting {
    workers: usize,
    uplinks: Vec<u64>,
    server_down: u64,
    aggregators: usize,
    jobs: usize,
    compute_ms: u64,
    replica: bool,
}

fn settings() -> impl Strategy<Value = Setting> {
    (2..7usize, proptest::collection::vec(20..1000u64, 6), 50..1000u64, 0..3usize, 1..3usize)
        .prop_flat_map(|(workers, uplinks, server_down, aggregators, jobs)| {
            (0..40u64, any::<bool>()).prop_map(move |(compute_ms, replica)| Setting {
                workers,
                uplinks: uplinks.clone(),
                server_down,
                aggregators,
                jobs,
                compute_ms,
                replica,
            })
        })
}

fn build(setting: &Setting) -> World {
    let mut config = Config::default();
    for i in 0..setting.workers {
        config.hosts.push(world::host(&format!("w{i}"), setting.uplinks[i], 1000));
    }
    for i in 0..setting.aggregators {
        config.hosts.push(world::host(&format!("a{i}"), setting.server_down, setting.server_down));
    }
    config.hosts.push(world::host("r0", 1000, setting.server_down));
    config.hosts.push(world::host("s0", 1000, setting.server_down));
    let mut jobs = Vec::new();
    for index in 0..setting.jobs {
        let mut job = job(setting.workers);
        job.name = format!("j{index}");
        job.index = index as u16;
        job.server = format!("p{index}");
        job.dimension = 20_000 * (1 + index as u64);
        job.aggregators = (0..setting.aggregators).map(|i| format!("a{i}")).collect();
        if setting.replica {
            job.replica = Some("r0".into());
            job.div_max = Some(100.0);
        }
        config.nodes.push(world::node(&format!("p{index}"), "s0"));
        jobs.push(job);
    }
    let mut world = World::new(config, jobs);
    world.attach_all();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is granted fits every link at all times. Where two jobs have their servers on one host,
    /// about one setting in three hundred still sees two sums of theirs meet on an aggregator's
    /// uplink for a while (known, open); each job alone always fits.
    #[test]
    fn grants_fit_the_links(setting in settings()) {
        let mut world = build(&setting);
        let worker = Worker { compute_ns: setting.compute_ms * 1_000_000 };
        for index in 0..setting.jobs as u16 {
            world.loop_workers(index, worker);
        }
        world.run_for(1_000_000_000);
        let most = 1.02 * setting.jobs as f64;
        prop_assert!(world.load_max <= most, "{} of its rate: {}", world.load_max, world.fullest);
        for index in 0..setting.jobs {
            prop_assert!(world.status(index).counters.committed > 0);
        }
    }

    /// Every update asked for comes to an end, and no commit is over the delay bound.
    #[test]
    fn every_update_ends(setting in settings()) {
        let mut world = build(&setting);
        for _ in 0..2 {
            for index in 0..setting.jobs as u16 {
                for rank in 0..setting.workers as u8 {
                    world.ask(index, rank);
                }
            }
            world.run_for(7_000_000);
        }
        world.run_for(120_000_000_000);
        for index in 0..setting.jobs {
            let status = world.status(index);
            let counters = status.counters;
            prop_assert_eq!(status.pending, 0);
            prop_assert_eq!(status.in_flight, 0);
            prop_assert_eq!(counters.requested, 2 * setting.workers as u64);
            prop_assert_eq!(counters.committed + counters.dropped, counters.requested);
            prop_assert!(counters.delay_max <= 2 * setting.workers as u64);
            // The plan knows deadlines: what it grants, the server commits.
            prop_assert_eq!(counters.granted, counters.committed);
        }
    }

    /// The same messages give the same actions.
    #[test]
    fn the_engine_is_deterministic(setting in settings()) {
        let run = || {
            let mut world = build(&setting);
            for rank in 0..setting.workers as u8 {
                world.ask(0, rank);
            }
            world.run_for(100_000_000);
            (world.commands.clone(), world.grants.clone())
        };
        prop_assert_eq!(run(), run());
    }
}
