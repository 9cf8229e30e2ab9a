use std::collections::BTreeSet;

use proptest::prelude::*;
use weft_control::BandError;

use super::*;

const OWN: Root = Root::Own { rate_bytes_per_sec: 12_500_000 };

fn place(root: Root) -> Place {
    Place { device: "eth0".to_owned(), mtu: 1500, root, mark: Mark::of("s0") }
}

fn under() -> Place {
    place(Root::Under(ClassId::parse("1:1").unwrap()))
}

/// A kernel that takes the lines and lists what it has, in iproute2 6.1's words.
#[derive(Clone, Debug, Default)]
struct Kernel {
    /// Handle, default class, and `r2q`.
    root: Option<(String, String, String)>,
    /// Parent, ceil, cburst, prio.
    classes: BTreeMap<String, (String, String, String, Option<String>)>,
    /// Preferences that had filters, until they are deleted as a whole.
    tables: BTreeSet<String>,
    /// By preference and handle.
    filters: BTreeMap<(String, String), String>,
}

impl Kernel {
    /// An interface of `weft lab`.
    fn lab() -> Self {
        let mut kernel = Self::default();
        for line in [
            "qdisc add dev eth0 root handle 1: htb default 10",
            "class add dev eth0 parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit \
             burst 15528 cburst 15528 quantum 1514",
            "class add dev eth0 parent 1:1 classid 1:10 htb rate 100000bit ceil 100000000bit \
             burst 3028 cburst 15528 quantum 1514 prio 7",
        ] {
            kernel.run(line);
        }
        kernel
    }

    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| {
            let at = words.iter().position(|other| *other == word);
            words[at.unwrap_or_else(|| panic!("{word} in {line}")) + 1].to_owned()
        };
        let has = |word: &str| words.contains(&word);
        assert_eq!(after("dev"), "eth0");
        match (words[0], words[1]) {
            ("qdisc", "add") => {
                assert!(self.root.is_none(), "{line}");
                let r2q = if has("r2q") { after("r2q") } else { "10".to_owned() };
                self.root = Some((after("handle"), after("default"), r2q));
            }
            ("qdisc", "del") => {
                assert_eq!(self.root.as_ref().unwrap().0, after("handle"));
                *self = Self::default();
            }
            ("class", "add") => {
                let parent = after("parent");
                let root = &self.root.as_ref().unwrap().0;
                assert!(parent == *root || self.classes.contains_key(&parent), "{line}");
                if let Some(parent) = self.classes.get_mut(&parent) {
                    // It has no traffic of its own any more.
                    parent.3 = None;
                }
                let prio = if parent == *root { None } else { Some(after("prio")) };
                let class = (parent, after("ceil"), after("cburst"), prio);
                assert!(self.classes.insert(after("classid"), class).is_none(), "{line}");
            }
            ("class", "change") => {
                let class = self.classes.get_mut(&after("classid")).unwrap();
                assert_eq!(class.0, after("parent"));
                (class.1, class.2) = (after("ceil"), after("cburst"));
            }
            ("class", "del") => {
                let id = after("classid");
                assert!(!self.filters.values().any(|to| *to == id), "in use: {line}");
                self.classes.remove(&id).unwrap();
            }
            ("filter", verb) => {
                let pref = after("pref");
                if verb == "del" && !has("handle") {
                    assert!(self.tables.remove(&pref), "{line}");
                    return self.filters.retain(|(other, _), _| *other != pref);
                }
                self.tables.insert(pref.clone());
                // The kernel numbers its tables, one for each preference.
                let table = pref.parse::<u32>().unwrap() - 22_339 + 801;
                let handle = after("handle");
                let (_, node) = handle.split_once("::").unwrap();
                let handle = format!("{table}::{node}");
                let key = (pref, handle);
                match verb {
                    "add" => assert!(self.filters.insert(key, after("flowid")).is_none(), "{line}"),
                    "replace" => {
                        let to = after("flowid");
                        assert!(has("u32") && self.classes.contains_key(&to), "{line}");
                        *self.filters.get_mut(&key).unwrap() = to;
                    }
                    "del" => drop(self.filters.remove(&key).unwrap()),
                    other => panic!("{other}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn list(&self) -> [String; 3] {
        let qdiscs = match &self.root {
            None => r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#.to_owned(),
            Some((handle, default, r2q)) => format!(
                r#"[{{"kind":"htb","handle":"{handle}","dev":"eth0","root":true,"options":{{"r2q":{r2q},"default":"{default}"}}}}]"#
            ),
        };
        let classes = self.classes.iter().map(|(id, (parent, ceil, cburst, prio))| {
            let at =
                if parent.ends_with(':') { "root".to_owned() } else { format!("parent {parent}") };
            let prio = prio.as_ref().map_or(String::new(), |prio| format!("prio {prio} "));
            // All have next to nothing of their own but the link's.
            let rate = if parent.ends_with(':') { ceil } else { "100Kbit" };
            format!(
                "class htb {id} {at} {prio}rate {rate} ceil {ceil} burst 3028b cburst {cburst} \n"
            )
        });
        let filters = self.filters.iter().map(|((pref, handle), to)| {
            format!(
                r#"{{"protocol":"ip","pref":{pref},"kind":"u32","chain":0,"options":{{"fh":"{handle}","flowid":"{to}"}}}}"#
            )
        });
        let tables = self.tables.iter().map(|pref| {
            format!(
                r#"{{"protocol":"ip","pref":{pref},"kind":"u32","chain":0,"options":{{"fh":"801:","ht_divisor":1}}}}"#
            )
        });
        let filters: Vec<String> = tables.chain(filters).collect();
        [qdiscs, classes.collect(), format!("[{}]", filters.join(","))]
    }

    fn read(&self, place: &Place) -> Found {
        let [qdiscs, classes, filters] = self.list();
        place.read(&qdiscs, &classes, &filters).unwrap()
    }

    fn bring_to(&mut self, place: &Place, wanted: &Wanted) {
        place.lines(&self.read(place), wanted).iter().for_each(|line| self.run(line));
    }
}

#[test]
fn the_lines_of_an_own_tree_are_these() {
    let place = place(OWN);
    let lines = place.lines(&Found::default(), &Wanted::from([(3, 0)]));
    assert_eq!(
        lines,
        [
            "qdisc add dev eth0 root handle 5745: htb default 1 r2q 659666742",
            "class add dev eth0 parent 5745: classid 5745:2 htb rate 100000000bit \
             ceil 100000000bit burst 15528 cburst 15528 quantum 1514",
            "class add dev eth0 parent 5745:2 classid 5745:1 htb rate 100000bit \
             ceil 100000000bit burst 3028 cburst 15528 quantum 1514 prio 7",
            "class add dev eth0 parent 5745:2 classid 5745:100 htb rate 100000bit \
             ceil 100000000bit burst 3028 cburst 15528 quantum 1514 prio 0",
            "class add dev eth0 parent 5745:2 classid 5745:103 htb rate 100000bit \
             ceil 100000000bit burst 3028 cburst 15528 quantum 1514 prio 0",
            "filter add dev eth0 parent 5745: protocol ip pref 22339 handle ::3 u32 match ip \
             dsfield 0x0c 0xfc match u16 0x0000 0xffc0 at 2 flowid 5745:100",
            "filter add dev eth0 parent 5745: protocol ipv6 pref 22340 handle ::3 u32 match ip6 \
             priority 0x0c 0xfc match u16 0x0000 0xffc0 at 4 flowid 5745:100",
            "filter add dev eth0 parent 5745: protocol ip pref 22341 handle ::3 u32 match ip \
             dsfield 0x0c 0xfc flowid 5745:103",
            "filter add dev eth0 parent 5745: protocol ipv6 pref 22342 handle ::3 u32 match ip6 \
             priority 0x0c 0xfc flowid 5745:103",
        ]
    );
}

#[test]
fn a_rotation_replaces_filters_and_deletes_nothing() {
    for (place, mut kernel) in [(place(OWN), Kernel::default()), (under(), Kernel::lab())] {
        kernel.bring_to(&place, &Wanted::from([(3, 0), (7, 1)]));
        let lines = place.lines(&kernel.read(&place), &Wanted::from([(3, 1), (7, 0)]));
        let verbs: Vec<&str> =
            lines.iter().map(|line| &line[..line.find(" dev").unwrap()]).collect();
        assert_eq!(verbs[..2], ["class add", "class add"]);
        assert_eq!(verbs[2..], ["filter replace"; 4]);
        // The one that moves up goes first.
        assert!(lines[2].contains("803::7") && lines[4].contains("803::3"), "{lines:?}");
        lines.iter().for_each(|line| kernel.run(line));
        // And back: all classes are there.
        let back = place.lines(&kernel.read(&place), &Wanted::from([(3, 0), (7, 1)]));
        assert!(back.iter().all(|line| line.starts_with("filter replace")), "{back:?}");
    }
}

#[test]
fn what_is_there_needs_no_line_and_what_is_gone_leaves_nothing() {
    for (place, mut kernel) in [(place(OWN), Kernel::default()), (under(), Kernel::lab())] {
        let before = kernel.list();
        let wanted = Wanted::from([(3, 0), (63, 6)]);
        kernel.bring_to(&place, &wanted);
        let found = kernel.read(&place);
        assert_eq!(found.bands(&place), Some(wanted.clone()));
        assert_eq!(place.lines(&found, &wanted), [""; 0]);
        // Filters go at once, classes when nothing waits in them.
        kernel.bring_to(&place, &Wanted::new());
        let found = kernel.read(&place);
        assert_eq!((found.bands(&place), found.is_clean()), (Some(Wanted::new()), false));
        place.removal(&found).iter().for_each(|line| kernel.run(line));
        assert_eq!(kernel.list(), before);
    }
}

fn root(kind: &str, handle: &str) -> String {
    format!(r#"[{{"kind":"{kind}","handle":"{handle}","root":true,"options":{{}}}}]"#)
}

fn error(read: Result<Found, Problem>) -> Option<BandError> {
    read.err().map(|problem| problem.error)
}

const LAB: &str = "class htb 1:1 root rate 100Mbit ceil 100Mbit burst 15512b cburst 15512b \n";

#[test]
fn what_is_somebody_elses_is_refused_by_its_name() {
    for (qdiscs, name) in [
        (root("htb", "1:"), "qdisc htb 1:"),
        // Weft's handle, and what `tc` gives a root by itself.
        (root("htb", "5745:"), "qdisc htb 5745:"),
        (root("htb", "5745:").replace("{}", r#"{"r2q":10}"#), "no mark of Weft's"),
        (root("tbf", "5745:"), "qdisc tbf 5745:"),
        (root("netem", "8001:"), "qdisc netem 8001:"),
    ] {
        let problem = place(OWN).read(&qdiscs, "", "").unwrap_err();
        assert_eq!((problem.error, problem.is_bare), (BandError::Foreign, true), "{qdiscs}");
        assert!(problem.words.contains(name), "{problem:?}");
    }
    let leaf = LAB.replace("root rate", "root leaf 10: prio 0 rate");
    for (qdiscs, classes, words) in [
        (root("noqueue", "0:"), "", "under 1:1: there is nothing at the root"),
        (root("htb", "2:"), LAB, "under 1:1: there is qdisc htb 2: at the root"),
        (root("htb", "1:"), "", "under 1:1: there is no such class"),
        (root("tbf", "1:"), LAB, "under 1:1: there is qdisc tbf 1: at the root"),
        // Its own traffic would go past all classes.
        (root("htb", "1:"), &leaf, "class 1:1 has no classes under it"),
    ] {
        let problem = under().read(&qdiscs, classes, "").unwrap_err();
        assert_eq!((problem.error, problem.is_bare), (BandError::NoClass, true), "{problem:?}");
        assert!(problem.words.contains(words), "{problem:?}");
    }
    assert!(under().read(&root("htb", "1:"), LAB, "").is_ok());
    // Classes with the numbers of Weft's that are not as Weft makes them; the last one is.
    for (theirs, is_ours) in [
        ("1:100 parent 1:1 prio 5 rate 40Mbit ceil 100Mbit", false),
        ("1:103 parent 1:1 prio 0 rate 20Mbit ceil 20Mbit", false),
        ("1:103 parent 1:1 rate 100Kbit ceil 100Mbit", false),
        ("1:203 parent 1:1 prio 0 rate 100Kbit ceil 100Mbit", false),
        ("1:103 parent 1:9 prio 0 rate 100Kbit ceil 100Mbit", false),
        ("1:103 parent 1:1 leaf 8001: prio 0 rate 100Kbit ceil 100Mbit", true),
    ] {
        let classes = format!("{LAB}class htb {theirs} burst 1600b cburst 1600b \n");
        let read = under().read(&root("htb", "1:"), &classes, "");
        assert_eq!(read.is_ok(), is_ours, "{theirs}: {read:?}");
    }
    let own = "class htb 5745:2 root rate 100Mbit ceil 100Mbit burst 15512b cburst 15512b \n\
               class htb 5745:1 parent 5745:2 prio 1 rate 30Mbit ceil 100Mbit burst 1b cburst 1b \n";
    let marked = root("htb", "5745:").replace("{}", r#"{"r2q":659666742}"#);
    let read = place(OWN).read(&marked, own, "");
    assert_eq!(error(read), Some(BandError::Foreign), "another's class of the rest's number");
    assert_eq!(error(place(OWN).read("no JSON", "", "")), Some(BandError::Failed));
    // A filter of Weft's preference that is not Weft's.
    let filters = r#"[{"pref":22341,"options":{"fh":"801::800","flowid":"1:1"}}]"#;
    let read = under().read(&root("htb", "1:"), LAB, filters);
    assert_eq!(error(read), Some(BandError::Foreign));
}

/// Two jobs, as the kernel lists them, with what a stranger hung on them.
fn with_a_stranger(
    place: &Place,
    kernel: &Kernel,
    (qdisc, class, filter): (&str, &str, &str),
) -> Found {
    let [qdiscs, classes, filters] = kernel.list();
    let of_103 = format!("{:x}:103 parent {} ", place.major(), place.parent());
    let inner = (of_103.clone() + "prio 0 ", of_103);
    let more = |list: &str, one: &str| match one {
        "" => list.to_owned(),
        one => list.trim_end_matches(']').to_owned() + "," + one + "]",
    };
    let classes = match class {
        "" => classes,
        // The kernel says no band of one that has others under it.
        class if class.contains(":103 prio") => format!(
            "{}class htb {class} rate 1Mbit ceil 1Mbit burst 1b cburst 1b \n",
            classes.replace(&inner.0, &inner.1)
        ),
        class => format!("{classes}class htb {class} rate 1Mbit ceil 1Mbit burst 1b cburst 1b \n"),
    };
    place.read(&more(&qdiscs, qdisc), &classes, &more(&filters, filter)).unwrap()
}

/// What somebody changed is put right, and needs no more lines then.
#[test]
fn what_is_changed_is_seen_and_put_right() {
    let wanted = Wanted::from([(3, 0)]);
    for (place, mut kernel, major, last) in
        [(place(OWN), Kernel::default(), "5745", 4), (under(), Kernel::lab(), "1", 3)]
    {
        kernel.bring_to(&place, &wanted);
        let whole = kernel.list();
        for (at, minor) in ["103", "100", "1", "2"].into_iter().enumerate().take(last) {
            let class = kernel.classes.get_mut(&format!("{major}:{minor}")).unwrap();
            class.1 = "50000000bit".to_owned();
            let found = kernel.read(&place);
            let lines = place.lines(&found, &wanted);
            // The lab's own class is the lab's to change, and Weft's follow it.
            if at == 2 && place.is_under() {
                assert!(lines.iter().all(|line| line.contains("ceil 50000000bit")), "{lines:?}");
                assert_eq!(lines.len(), 2);
                break;
            }
            assert_eq!(found.bands(&place), None, "{minor}");
            assert!(lines.len() == 1 && lines[0].starts_with("class change"), "{lines:?}");
            kernel.bring_to(&place, &wanted);
            assert_eq!(kernel.list(), whole);
        }
    }
    for (words, is_it) in [
        ("123456Kbit", true),
        ("123457Kbit", false),
        ("123Mbit", true),
        ("123456784bit", true),
        ("123456785bit", false),
        ("Mbit", false),
        ("123456K", false),
    ] {
        assert_eq!(read::is_rate(words, 15_432_098), is_it, "{words}");
    }
}

/// As iproute2 6.1 lists them.
const FILTERS: &str = r#"[{"protocol":"ip","pref":22339,"kind":"u32","chain":0},
{"protocol":"ip","pref":22339,"kind":"u32","chain":0,"options":{"fh":"800:","ht_divisor":1}},
{"protocol":"ip","pref":22339,"kind":"u32","chain":0,"options":{"fh":"800::3","order":3,"key_ht":"800","bkt":"0","flowid":"5745:100","not_in_hw":true,"match":{"value":"c0000","mask":"fcffc0","offmask":"","off":0}}},
{"protocol":"ipv6","pref":22340,"kind":"u32","chain":0,"options":{"fh":"801::3","order":3,"key_ht":"801","bkt":"0","flowid":"5745:100","not_in_hw":true,"match":{"value":"c00000","mask":"fc00000","offmask":"","off":0},"match":{"value":"0","mask":"ffc00000","offmask":"","off":4}}},
{"protocol":"ip","pref":22341,"kind":"u32","chain":0,"options":{"fh":"802::3","order":3,"key_ht":"802","bkt":"0","flowid":"5745:103","not_in_hw":true,"match":{"value":"c0000","mask":"fc0000","offmask":"","off":0}}},
{"protocol":"ipv6","pref":22342,"kind":"u32","chain":0,"options":{"fh":"803::3","order":3,"key_ht":"803","bkt":"0","flowid":"5745:103","not_in_hw":true,"match":{"value":"c00000","mask":"fc00000","offmask":"","off":0}}}]"#;

#[test]
fn a_filter_that_matches_something_else_is_made_anew() {
    let place = place(OWN);
    let wanted = Wanted::from([(3, 0)]);
    let mut kernel = Kernel::default();
    kernel.bring_to(&place, &wanted);
    let [qdiscs, classes, _] = kernel.list();
    let read = |filters: &str| place.read(&qdiscs, &classes, filters).unwrap();
    let found = read(FILTERS);
    assert_eq!((found.bands(&place), found.obstacle(&wanted)), (Some(wanted.clone()), None));
    for (was, is, handle) in [
        (r#""value":"c0000","mask":"fc0000""#, r#""value":"100000","mask":"fc0000""#, "802::3"),
        (r#"{"value":"c0000","mask":"fcffc0""#, r#"{"value":"c0000","mask":"fc0000""#, "800::3"),
        // One key of two.
        (r#""mask":"ffc00000""#, r#""mask":"0""#, "801::3"),
        (r#""mask":"fc00000","offmask":"","off":0},"#, r#""mask":"0","off":0},"#, "801::3"),
    ] {
        let found = read(&FILTERS.replacen(was, is, 1));
        let lines = place.lines(&found, &wanted);
        assert_eq!(found.bands(&place), None, "{is}");
        assert!(lines.len() == 2 && lines[0].starts_with("filter del"), "{is}: {lines:?}");
        assert!(lines[0].contains(handle) && lines[1].starts_with("filter add"), "{lines:?}");
    }
    // A stranger's filter that is asked before them, wherever it leads; one after them is none.
    for (filter, is_before) in [
        (r#"{"protocol":"all","pref":1,"options":{"fh":"804::800","flowid":"5745:1"}}"#, true),
        (r#"{"protocol":"ip","pref":22338,"options":{"handle":1,"classid":"5745:1"}}"#, true),
        (r#"{"protocol":"all","pref":1,"options":{"handle":1,"actions":[]}}"#, true),
        (r#"{"protocol":"arp","pref":1,"options":{"fh":"804::800","flowid":"5745:1"}}"#, false),
        (r#"{"protocol":"all","pref":22343,"options":{"fh":"804::8","flowid":"5745:1"}}"#, false),
        (r#"{"protocol":"all","pref":1,"options":{"fh":"804:","ht_divisor":1}}"#, false),
    ] {
        let found = read(&FILTERS.replacen('[', &format!("[{filter},"), 1));
        assert_eq!(found.obstacle(&wanted).is_some(), is_before, "{filter}");
        assert_eq!(found.obstacle(&Wanted::new()), None);
        let stays = !filter.contains("ht_divisor");
        assert_eq!(found.stranger().is_some(), stays, "{filter}");
    }
}

#[test]
fn what_a_stranger_hung_on_wefts_stays_with_what_it_hangs_on() {
    for (place, mut kernel, major) in
        [(place(OWN), Kernel::default(), "5745"), (under(), Kernel::lab(), "1")]
    {
        kernel.bring_to(&place, &Wanted::from([(3, 0), (7, 1)]));
        let whole = place.removal(&kernel.read(&place));
        let qdisc = format!(r#"{{"kind":"netem","handle":"9:","parent":"{major}:103"}}"#);
        let class = format!("{major}:9999 parent {major}:103 prio 0");
        let filter =
            format!(r#"{{"pref":7,"options":{{"fh":"800::800","flowid":"{major}:103"}}}}"#);
        for (stranger, name) in [
            ((qdisc.as_str(), "", ""), "qdisc netem 9:"),
            (("", class.as_str(), ""), "class"),
            (("", "", filter.as_str()), "a filter of preference 7"),
        ] {
            let found = with_a_stranger(&place, &kernel, stranger);
            assert!(found.stranger().is_some_and(|words| words.contains(name)), "{found:?}");
            let lines = place.removal(&found);
            let goes = |what: &str| lines.iter().any(|line| line.contains(what));
            assert!(!goes("qdisc del") && !goes(":103"), "{lines:?}");
            assert!(!goes(&format!("{:x}", place.mark.minor())), "it is known by it: {lines:?}");
            assert!(goes(":207") && goes(":100") && goes("filter del"), "{lines:?}");
            // Jobs may have bands all the same, but for those whose frames have no class any more.
            assert_eq!(found.bands(&place), Some(Wanted::from([(3, 0), (7, 1)])));
            if name.starts_with("a filter") && !place.is_under() {
                assert!(found.obstacle(&Wanted::from([(7, 1)])).is_some(), "it is asked first");
                continue;
            }
            let in_the_way =
                |wanted: &[(u8, u8)]| found.obstacle(&wanted.iter().copied().collect());
            assert_eq!((in_the_way(&[(7, 1)]), in_the_way(&[])), (None, None));
            assert_eq!(in_the_way(&[(3, 0), (7, 1)]), found.stranger().filter(|_| name == "class"));
        }
        // It has gone its way.
        assert_eq!(place.removal(&kernel.read(&place)), whole);
    }
    // In a tree of Weft's own a class goes with the tree; beside those of a lab it is the lab's.
    let mut kernel = Kernel::default();
    kernel.bring_to(&place(OWN), &Wanted::from([(3, 0)]));
    let found = with_a_stranger(&place(OWN), &kernel, ("", "5745:9999 parent 5745:2 prio 0", ""));
    assert_eq!(found.stranger(), Some("class 5745:9999 under 5745:2"));
    let mut kernel = Kernel::lab();
    kernel.bring_to(&under(), &Wanted::from([(3, 0)]));
    let found = with_a_stranger(&under(), &kernel, ("", "1:9999 parent 1:1 prio 0", ""));
    assert_eq!(found.stranger(), None);
}

/// By its mark a node finds what it left in another place, and nothing of others.
#[test]
fn a_tree_is_known_as_the_nodes_that_made_it() {
    let wanted = Wanted::from([(3, 0)]);
    let (mut own, mut lab) = (Kernel::default(), Kernel::lab());
    own.bring_to(&place(OWN), &wanted);
    lab.bring_to(&under(), &wanted);
    let (mine, other) = (Mark::of("s0"), Mark::of("s1"));
    let own = &own.list()[0];
    assert_eq!(traces(own, mine).unwrap(), [Trace::Own("eth0".to_owned())]);
    assert_eq!(traces(own, other).unwrap(), [], "another node's");
    let [roots, classes, _] = lab.list();
    assert_eq!(traces(&roots, mine).unwrap(), [Trace::Perhaps("eth0".to_owned(), 1)]);
    assert_eq!(mine.parent(&classes, 1), ClassId::parse("1:1"));
    assert_eq!((other.parent(&classes, 1), mine.parent(&classes, 2)), (None, None));
    // Roots that Weft did not make, or not this version.
    let roots = r#"[{"kind":"htb","handle":"5745:","dev":"a","root":true,"options":{"r2q":10}},
        {"kind":"tbf","handle":"1:","dev":"b","root":true,"options":{}},
        {"kind":"noqueue","handle":"0:","dev":"c","root":true,"options":{}},
        {"kind":"htb","handle":"7:","dev":"d","parent":"1:1","options":{"r2q":10}}]"#;
    assert_eq!(traces(roots, mine).unwrap(), []);
    assert!(traces("no JSON", mine).is_err());
    // A class of the mark's number that is not as Weft makes it.
    let theirs = classes.replace("prio 7 rate 100Kbit", "prio 0 rate 1Mbit");
    assert_ne!(theirs, classes);
    assert_eq!(mine.parent(&theirs, 1), None);
}

#[test]
fn what_tc_says_when_it_fails_is_understood() {
    for (words, error) in [
        ("RTNETLINK answers: Operation not permitted\n", BandError::NotPermitted),
        ("Cannot find device \"eth9\"\nCommand failed -:1\n", BandError::NoDevice),
        ("Error: Specified qdisc kind is unknown.\nCommand failed -:1", BandError::NoDiscipline),
        ("Error: TC classifier not found.\nWe have an error", BandError::NoDiscipline),
        ("Error: HTB class in use.\n", BandError::Failed),
    ] {
        assert_eq!(failure(words), error, "{words}");
    }
}

#[test]
fn what_the_kernel_counted_of_wefts_classes_is_read() {
    let text = "class htb 5745:1 parent 5745:2 prio 7 rate 100Kbit ceil 1Mbit burst 1b cburst 1b\n \
                Sent 700 bytes 7 pkt (dropped 0, overlimits 0 requeues 0)\n \
                backlog 999b 1p requeues 0\n\
                class htb 5745:103 parent 5745:2 prio 0 rate 100Kbit ceil 1Mbit burst 1b cburst \
                1b\n Sent 15140 bytes 10 pkt (dropped 3, overlimits 0 requeues 0)\n \
                backlog 12Kb 8p requeues 0\n lended: 3 borrowed: 0 giants: 0\n\
                class htb 5745:2 root rate 1Mbit ceil 1Mbit burst 1b cburst 1b\n \
                Sent 9 bytes 9 pkt (dropped 9, overlimits 0 requeues 0)\n backlog 9b 9p requeues \
                0\n\
                class htb 5745:104 parent 5745:9 prio 0 rate 1Kbit ceil 1Mbit burst 1b cburst 1b\n \
                Sent 8 bytes 8 pkt (dropped 8, overlimits 0 requeues 0)\n";
    let counts = counts(&place(OWN), text);
    let facts = |minor: u16| {
        let count = &counts[&minor];
        [count.sent, count.sent_bytes, count.full, count.waiting, count.waiting_bytes]
    };
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert_eq!((facts(1), facts(0x103)), ([7, 700, 0, 1, 999], [10, 15_140, 3, 8, 12 * 1024]));
    assert!(super::counts(&place(OWN), "").is_empty());
    // Under another's class, number 1 is not Weft's.
    let lab = text.replace("5745:2", "1:1").replace("5745:", "1:");
    assert_eq!(super::counts(&under(), &lab).keys().collect::<Vec<_>>(), [&0x103]);
}

fn any_bands() -> impl Strategy<Value = Wanted> {
    proptest::collection::btree_map(1u8..=8, 0u8..7, 0..6)
}

proptest! {
    /// From any tree that a change reached, or a crash in the middle of one, the next change leads
    /// to what is wanted, and removal to what was there before Weft came.
    #[test]
    fn every_change_and_every_crash_leads_on(
        is_own in any::<bool>(),
        steps in proptest::collection::vec((any_bands(), 0usize..40), 1..6),
        last in any_bands(),
    ) {
        let (place, mut kernel) =
            if is_own { (place(OWN), Kernel::default()) } else { (under(), Kernel::lab()) };
        let clean = kernel.list();
        for (wanted, survives) in steps {
            let lines = place.lines(&kernel.read(&place), &wanted);
            lines.iter().take(survives).for_each(|line| kernel.run(line));
        }
        kernel.bring_to(&place, &last);
        let found = kernel.read(&place);
        prop_assert_eq!(found.bands(&place), Some(last.clone()));
        prop_assert!(place.lines(&found, &last).is_empty());
        place.removal(&found).iter().for_each(|line| kernel.run(line));
        prop_assert_eq!(kernel.list(), clean);
    }

    /// After each line of a change, two jobs that keep their order have it, or are alike.
    #[test]
    fn bands_never_invert_while_they_change(from in any_bands(), to in any_bands()) {
        let place = place(OWN);
        let mut kernel = Kernel::default();
        kernel.bring_to(&place, &from);
        let now = |kernel: &Kernel, label: u8| {
            let filters = kernel.read(&place).filters;
            let filter = filters.get(&(Family::V4, label)).cloned();
            filter.and_then(|(_, class)| split(class.minor)).map(|(band, _)| band)
        };
        for line in place.lines(&kernel.read(&place), &to) {
            kernel.run(&line);
            for (a, b) in from.keys().flat_map(|a| from.keys().map(move |b| (*a, *b))) {
                let (Some(a_to), Some(b_to)) = (to.get(&a), to.get(&b)) else { continue };
                if from[&a] <= from[&b] && a_to <= b_to && (from[&a], a_to) != (from[&b], b_to) {
                    prop_assert!(now(&kernel, a) <= now(&kernel, b), "{a} {b} after {line}");
                }
            }
        }
    }
}
