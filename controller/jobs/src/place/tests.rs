use alloc::sync::Arc;

use weft_plan::sample::Numbers;

use super::*;

fn job(model: &str) -> Job {
    Job {
        name: "j".into(),
        gpus: 1,
        submit_ns: 0,
        duration_ns: 1,
        model: Arc::from(model),
        iterations: 0,
        global_batch: 0,
    }
}

fn placer(name: &str, cluster: &Cluster) -> Box<dyn Placer> {
    (by_name(name).unwrap().placer)(cluster, &Options::default())
}

/// The shares as pairs of node and GPUs.
fn place(placer: &mut dyn Placer, model: &str, gpus: u32) -> Option<Vec<(u32, u32)>> {
    let shares = placer.place(JobId(0), &job(model), gpus)?;
    Some(shares.iter().map(|share| (share.node, share.gpus)).collect())
}

#[test]
fn skewed_models_are_consolidated_and_others_fill_fragments() {
    let cluster = Cluster::of_nodes(3, 4);
    let mut placer = placer("skew", &cluster);
    assert_eq!(place(&mut *placer, "vgg19", 3), Some(vec![(0, 3)]));
    // ResNet takes what is left of node 0 first; VGG the node that has least over.
    assert_eq!(place(&mut *placer, "resnet50", 2), Some(vec![(0, 1), (1, 1)]));
    assert_eq!(place(&mut *placer, "vgg16", 4), Some(vec![(2, 4)]));
    assert_eq!(place(&mut *placer, "vgg16", 4), None);
    assert_eq!(place(&mut *placer, "unheard-of", 3), Some(vec![(1, 3)]));
}

#[test]
fn the_families_of_the_paper_fall_on_both_sides_of_the_limit() {
    for (model, skewed) in [
        ("vgg19", true),
        ("vgg16", true),
        ("vgg11", true),
        ("alexnet", true),
        ("resnet152", false),
        ("resnet50", false),
        ("inception3", false),
        ("inception4", false),
    ] {
        assert_eq!(skew::is_skewed(model, skew::PACK_LIMIT_DEFAULT), skewed, "{model}");
    }
    assert_eq!(skew::skew("gpt"), None);
}

#[test]
fn yarn_takes_idle_nodes_under_one_switch_or_waits() {
    let cluster = Cluster { switches: 2, ..Cluster::of_nodes(2, 4) };
    let mut placer = placer("yarn", &cluster);
    assert_eq!(place(&mut *placer, "", 6), Some(vec![(0, 4), (1, 2)]));
    assert_eq!(place(&mut *placer, "", 2), Some(vec![(1, 2)]));
    assert_eq!(place(&mut *placer, "", 3), Some(vec![(2, 3)]));
    // Five are free under the second switch, of which one node is idle and the other has one.
    assert_eq!(place(&mut *placer, "", 6), None);
    assert_eq!(place(&mut *placer, "", 4), Some(vec![(3, 4)]));
}

#[test]
fn yarn_counts_processors_and_memory() {
    let few = Cluster { cpus_per_node: 11, ..Cluster::of_nodes(1, 4) };
    let mut cpus = placer("yarn", &few);
    assert_eq!(place(&mut *cpus, "", 2), None);
    assert_eq!(place(&mut *cpus, "", 1), Some(vec![(0, 1)]));
    let little = Cluster { mem_per_node_gb: 9, ..Cluster::of_nodes(1, 4) };
    let mut memory = placer("yarn", &little);
    assert_eq!(place(&mut *memory, "", 1), Some(vec![(0, 1)]));
    assert_eq!(place(&mut *memory, "", 1), None);
}

#[test]
fn consolidation_uses_as_few_nodes_as_there_can_be() {
    let mut placer = placer("consolidate", &Cluster::of_nodes(4, 4));
    for gpus in [3, 2, 1] {
        place(&mut *placer, "", gpus);
    }
    // 1 is left at node 0 (3 + 0), and 2 at node 1; the last took node 0's.
    assert_eq!(place(&mut *placer, "", 9), Some(vec![(2, 4), (3, 4), (1, 1)]));
}

/// No GPU is given twice, and what is given back is there again.
#[test]
fn no_gpu_has_two_jobs() {
    let cluster = Cluster { switches: 2, ..Cluster::of_nodes(5, 8) };
    let models = ["vgg16", "resnet50", "other"];
    for placement in PLACEMENTS {
        let mut numbers = Numbers::new(7);
        let mut placer = (placement.placer)(&cluster, &Options::default());
        let mut held: Vec<(Job, u32, Vec<Share>)> = Vec::new();
        for _ in 0..2_000 {
            if !held.is_empty() && numbers.within(0, 2) == 0 {
                let (job, gpus, shares) = held.swap_remove(numbers.index(held.len()));
                placer.release(JobId(0), &job, gpus, &shares);
            } else {
                let job = job(models[numbers.index(3)]);
                let gpus = u32::try_from(numbers.within(1, 25)).unwrap();
                if let Some(shares) = placer.place(JobId(0), &job, gpus) {
                    let given: u32 = shares.iter().map(|share| share.gpus).sum();
                    assert!(given == gpus || placement.name == "count");
                    held.push((job, gpus, shares));
                }
            }
            let mut used = vec![0; 10];
            for share in held.iter().flat_map(|(_, _, shares)| shares) {
                used[share.node as usize] += share.gpus;
            }
            assert!(used.iter().all(|used| *used <= 8), "{}: {used:?}", placement.name);
            assert!(held.iter().map(|(_, gpus, _)| gpus).sum::<u32>() <= 80);
        }
        for (job, gpus, shares) in held.drain(..) {
            placer.release(JobId(0), &job, gpus, &shares);
        }
        // All is back: the cluster holds as many whole nodes as it has.
        for _ in 0..10 {
            assert!(placer.place(JobId(0), &job("vgg16"), 8).is_some(), "{}", placement.name);
        }
        assert!(placer.place(JobId(0), &job("vgg16"), 1).is_none());
    }
}

#[test]
fn an_unknown_placement_lists_the_known() {
    let error = by_name("tetris").unwrap_err();
    assert!(alloc::string::ToString::to_string(&error).contains("known are count, yarn, consol"));
}
