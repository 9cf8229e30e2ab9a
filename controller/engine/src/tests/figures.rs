//! What boxes tell of what they have counted: added up over their lives, and not believed when it
//! shrinks.

use weft_control::figures::{BandFigures, BoxFigures, DropReason};

use super::*;

fn hello(life: u64) -> NodeHello {
    NodeHello { name: "s0".into(), life, roles: Vec::new(), holdings: Vec::new(), bands: None }
}

fn figures(frames: u64, waiting: u64) -> BoxFigures {
    let band = BandFigures { sent: 10 * frames, waiting, ..BandFigures::default() };
    BoxFigures {
        drops: [frames; DropReason::COUNT],
        rx_dropped: frames,
        bands: Some([band; 9]),
        ..BoxFigures::default()
    }
}

/// Of the box: refused for the first reason, lost, sent in band 0, waiting there.
fn shown(controller: &Controller) -> (u64, u64, u64, u64) {
    let status = controller.status(0);
    let node = status.nodes.iter().find(|node| node.name == "s0").unwrap();
    let band = node.figures.bands.unwrap_or_default()[0];
    (node.figures.drops[0], node.figures.rx_dropped, band.sent, band.waiting)
}

#[test]
fn figures_add_up_over_lives_and_what_waits_is_of_now() {
    let network = Config { jobs: vec![job(2)], ..network(2, 100, 100) };
    let mut controller = Controller::new(network, &Saved::fresh(0), built_in_policies()).unwrap();
    assert_eq!(shown(&controller), (0, 0, 0, 0));
    let node = controller.handle_node(0, &hello(1)).unwrap();
    controller.handle_figures(node, &figures(5, 7)).unwrap();
    assert_eq!(shown(&controller), (5, 5, 50, 7));
    // Said again, it counts once.
    controller.handle_figures(node, &figures(5, 7)).unwrap();
    controller.handle_figures(node, &figures(6, 3)).unwrap();
    assert_eq!(shown(&controller), (6, 6, 60, 3));
    // Its stream breaks: what was counted stays, what waits is not known.
    controller.handle_node_gone(1, node);
    assert_eq!(shown(&controller), (6, 6, 60, 0));
    assert!(controller.handle_figures(node, &figures(9, 9)).is_err(), "it has no stream");
    // The same life goes on with what it counted; the next begins at 0.
    controller.handle_node(2, &hello(1)).unwrap();
    controller.handle_figures(node, &figures(8, 1)).unwrap();
    assert_eq!(shown(&controller), (8, 8, 80, 1));
    controller.handle_node(3, &hello(2)).unwrap();
    assert_eq!(shown(&controller), (8, 8, 80, 0));
    controller.handle_figures(node, &figures(2, 4)).unwrap();
    assert_eq!(shown(&controller), (10, 10, 100, 4));
}

#[test]
fn a_counter_that_shrinks_is_refused_by_name_and_changes_nothing() {
    let network = Config { jobs: vec![job(2)], ..network(2, 100, 100) };
    let mut controller = Controller::new(network, &Saved::fresh(0), built_in_policies()).unwrap();
    let node = controller.handle_node(0, &hello(1)).unwrap();
    controller.handle_figures(node, &figures(5, 7)).unwrap();
    let before = controller.status(0).nodes;
    let shrunk = BoxFigures { rx_dropped: 4, ..figures(9, 9) };
    for bad in [shrunk, BoxFigures::default(), BoxFigures { bands: None, ..figures(9, 9) }] {
        assert_eq!(controller.handle_figures(node, &bad).unwrap_err().field, "figures");
        assert_eq!(controller.status(0).nodes, before);
    }
    assert!(controller.handle_figures(NodeId(99), &figures(1, 1)).is_err());
    assert_eq!(controller.status(0).refused["figures"], 3);
    // As much as can be told is no more than can be shown, life after life.
    for life in 2..5 {
        controller.handle_node(life, &hello(life)).unwrap();
        controller.handle_figures(node, &figures(u64::MAX / 10, 1)).unwrap();
        assert!(shown(&controller).0 >= u64::MAX / 10);
    }
    assert_eq!(shown(&controller).2, u64::MAX, "it stays at the most");
}
